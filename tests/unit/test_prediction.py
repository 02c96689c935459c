"""Predictions and recommendations: from simulated worlds and from runs with known numbers."""

import dataclasses
import math
import shutil

import numpy as np
import pandas as pd
import pytest
from examples import expand

from study.core.errors import StudyError
from study.experiment.parameters import PARAMETERS
from study.machines import machine
from study.machines.host_capabilities import Capacity
from study.prediction import answers, goals, published, settings
from study.prediction import forecast as forecasts
from study.prediction.accuracy import judge_limit
from study.prediction.answers import answer_workloads, get_series_key
from study.prediction.check import check_held_out
from study.prediction.forecast import forecast
from study.prediction.goals import Goal, Limit
from study.prediction.recommend import derive_quantities, describe_changing_work, recommend
from study.prediction.runtime_model import predict
from study.records.tidy import runs_frame, split_ended_runs
from study.report.figures import drawing, prediction_drawing
from study.report.tables import prediction as tables

RUN = {
    **{name: parameter.default for name, parameter in PARAMETERS.items() if parameter.has_default},
    "machine": "m", "benchmark": "nt3", "dataset": "d", "scaling": "strong", "epochs": 384, "gpus": 1, "batch_size": 20,
    "loader": "read_csv", "batch_size_per_rank": 20, "train_samples": 1120, "samples_per_rank": 1120, "features": 60,
    "status": "ok", "resumed_after_epoch": math.nan, "cpu_limited": False, "gradient_mb": 10.0, "accuracy": 1.0,
    "test_accuracy": 1.0, "energy_job_j": math.nan, "energy_per_gpu_j": math.nan, "code_is_current": True,
    "time_per_epoch_steady_s": math.nan, "power_source": None, "learning_rate": 0.001,
    "packages": "tensorflow 2.18.1, horovod 0.28.1",
}  # fmt: skip


def run(gpus, repeat=1, **changes):
    """A run of 10 s + 0.1 s log2 N per epoch, 20 s of loading, 10 s of everything else."""
    epochs = 384 // gpus
    epoch = (10 + 0.1 * math.log2(gpus)) * (1 + 0.001 * repeat)
    return {
        **RUN, "gpus": gpus, "repeat": repeat, "nodes": -(-gpus // 6),
        "learning_rate_used": float(np.float32(0.001 * gpus)),
        "epochs_per_rank": epochs, "time_per_epoch_s": epoch, "load_s": 20.0, "runtime_s": epochs * epoch + 30,
        "record": f"runs/{gpus}-{repeat}/record.json", **changes,
    }  # fmt: skip


def runs(counts=(1, 2, 6, 12, 24), **changes):
    return pd.DataFrame([run(gpus, repeat, **changes) for gpus in counts for repeat in (1, 2)])


def with_energy(frame):
    """200 W per rank while computing, 50 W otherwise."""
    computing = 10 * frame["epochs_per_rank"]
    return frame.assign(
        power_source="measured", energy_job_j=frame["gpus"] * (200 * computing + 50 * (frame["runtime_s"] - computing))
    )


ANSWERED = {}  # {runs and plan, as texts: what `answered` gives}, since a fit takes half a second


def answered(frame, planned=None):
    """The answers for these runs; computed once for equal ones."""
    given = frame.to_csv(), str(planned)
    if given not in ANSWERED:
        ANSWERED[given] = computed(frame, planned)
    return ANSWERED[given]


def computed(frame, planned=None):
    chosen = settings.select_runs(frame)
    return list(answer_workloads(chosen.used, planned or {}, {"nodes": 1000, "ranks_per_node": 6}, chosen.failed))


def test_unusable_runs_are_left_out_and_counted():
    frame = runs()
    frame.loc[0, "status"] = "failed"
    frame.loc[1, "resumed_after_epoch"] = 3
    frame.loc[2, "trace"] = True
    frame.loc[3, ["link_mbit_per_s", "cpu_limited"]] = [100, True]
    frame.loc[4, "runtime_s"] = math.nan
    frame.loc[5, "time_per_epoch_s"] = 0
    frame.loc[6, "ensemble"] = 2
    found = settings.select_runs(frame)
    assert len(found.used) == 3
    assert sum(found.left_out.values()) == 5
    assert found.left_out["failed (unknown 1) on 1 rank"] == 1
    assert len(found.problems) == 2
    assert all("runs/6-" in line and "delete its folder" in line for line in found.problems)


def test_a_run_whose_times_contradict_each_other_is_left_out_and_named():
    frame = runs()
    frame["load_s"] = frame["runtime_s"] - frame["epochs_per_rank"] * frame["time_per_epoch_s"]
    frame.loc[0, "load_s"] += 0.0005 * frame.loc[0, "runtime_s"]  # rounding
    frame.loc[3, "load_s"] += 0.01 * frame.loc[3, "runtime_s"]
    found = settings.select_runs(frame)
    (line,) = found.problems
    assert line.startswith("runs/2-2/record.json: left out, because 192 epochs x 10.12 s + ")
    assert frame.index.difference(found.used.index).tolist() == [3]


def test_a_record_of_another_machine_or_run_is_refused(make_recorded, tmp_path):
    here, other = expand(gpus=[1, 2])
    make_recorded(here)
    assert split_ended_runs([here, other], tmp_path / "local") == ([here], [other])
    assert len(runs_frame([here], {"nt3": ""}, tmp_path / "local")) == 1
    (tmp_path / "local").rename(tmp_path / "summit")
    with pytest.raises(StudyError) as refused:
        runs_frame([here], {"nt3": ""}, tmp_path / "summit")
    path = tmp_path / "summit" / "runs" / here.directory
    assert str(refused.value).startswith(f"{path}/record.json: is a record with machine 'local', but 'summit' is")
    moved = tmp_path / "local" / "runs" / other.directory
    shutil.copytree(path, moved)
    with pytest.raises(StudyError, match="is a record with gpus 1, but 2 is expected here"):
        runs_frame([other], {"nt3": ""}, tmp_path / "local")


def test_only_workloads_with_runs_to_do_are_read_for_the_plan(make_recorded, tmp_path):
    """The files of a finished workload are damaged, which reading them would tell."""
    done, left = expand(gpus=[1, 2])
    (finished,) = expand(gpus=1, loader="chunked")
    (planned,) = expand(gpus=2, loader="chunked")
    for each in (done, finished):
        folder = make_recorded(each)
    (folder / "history.csv").write_text("")
    here = (tmp_path / "local", machine.load("local"))
    (line,) = forecast([done, left, finished], *here)
    assert "predicted from 1 of their workloads: 1 cannot be predicted" in line
    (line,) = forecast([done, left, finished, planned], *here)
    assert "nothing can be predicted" in line
    assert "history.csv: was changed" in line


def test_without_a_usable_run_there_is_no_answer():
    assert answered(runs(status="failed")) == []
    assert settings.select_runs(pd.DataFrame()).used.empty


def test_contradictory_repeats_are_named():
    frame = runs()
    frame.loc[3, "runtime_s"] *= 1.5
    (line,) = settings.select_runs(frame).problems
    assert line.startswith("runs/2-2/record.json: took ")
    assert "20%" in line


def test_a_larger_count_is_predicted():
    (answer,) = answered(runs())
    (series,) = answer.candidates
    found = answer.predictions[series]
    place = found.settings["ranks"].tolist().index(96)
    low, median, high = (each[place] for each in found.interval("runtime_s"))
    truth = 4 * (10 + 0.1 * math.log2(96)) + 30
    assert low <= truth <= high
    assert median == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(
    ("measured", "nodes", "planned", "candidates"),
    [
        # On 6 ranks per node: 4, 8, 16 double one rank, 6 and 12 double a node.
        ((1, 2, 24), 1000, (), [1, 2, 4, 6, 8, 12, 16, 24, 48, 96, 192, 384]),
        ((2, 12, 24), 8, (3,), [2, 3, 4, 6, 8, 12, 16, 24, 48]),  # none below the smallest or beyond the machine
        ((2, 6, 24), 4, (1, 8, 48), [2, 4, 6, 8, 12, 16, 24]),  # nor planned ones
        ((2, 16), 8, (48,), [2, 4, 6, 8, 12, 16, 32, 48]),  # one of the whole machine is
    ],
)
def test_candidates_double_a_rank_and_a_node(measured, nodes, planned, candidates):
    frame = runs(measured)
    plan = {get_series_key(frame.iloc[0]): list(planned)}
    (answer,) = answer_workloads(settings.select_runs(frame).used, plan, {"nodes": nodes, "ranks_per_node": 6})
    (found,) = answer.candidates.values()
    assert found["ranks"].tolist() == candidates


def test_a_series_goes_up_to_the_largest_count_of_the_workload():
    """Weak runs on 2 ranks only; strong ones on up to 24."""
    frame = pd.concat([runs(), runs((2,), scaling="weak", epochs_per_rank=384, runtime_s=5000.0)], ignore_index=True)
    (answer,) = answered(frame)
    (weak,) = [found for found in answer.candidates.values() if found["scaling"].iloc[0] == "weak"]
    assert weak["ranks"].tolist() == [2, 4, 6, 8, 12, 16, 24, *(24 * 2**power for power in range(1, 6))]


def test_counts_that_do_not_divide_the_epochs_are_no_candidates():
    (answer,) = answered(runs((1, 2, 4), epochs=12))
    assert [ranks for each in answer.candidates.values() for ranks in each["ranks"]] == [1, 2, 4]


def test_first_epochs_are_told_from_later_ones():
    """Ten epochs each: 1 s, and 3 s more for the first."""
    frame = runs((1, 2, 4, 8), scaling="weak", epochs=10, epochs_per_rank=10, time_per_epoch_s=1.3,
                 time_per_epoch_steady_s=1.0, runtime_s=43.0)  # fmt: skip
    (answer,) = answered(frame)
    (series,) = answer.candidates
    one = answer.candidates[series].assign(epochs_per_rank=1)
    assert predict(answer.model, one).interval("mean_epoch_s")[1][0] == pytest.approx(4, rel=0.1)


@pytest.mark.slow
def test_energy_follows_computing_and_waiting():
    (answer,) = answered(with_energy(runs()))
    (series,) = answer.candidates
    found = answer.predictions[series]
    place = found.settings["ranks"].tolist().index(96)
    truth = 96 * (200 * 40 + 50 * (4 * 0.1 * math.log2(96) + 30))
    assert found.interval("energy_job_j")[1][place] == pytest.approx(truth, rel=0.1)
    assert "energy_job_j" not in answered(runs())[0].predictions[series].draws


@pytest.mark.slow
def test_modelled_energy_is_not_mixed_with_measured():
    frame = with_energy(runs())
    frame.loc[0, "power_source"] = "modelled"
    frame.loc[0, "energy_job_j"] *= 100
    (answer,) = answered(frame)
    assert answer.energy_source == "measured"
    assert answer.observations["energy_per_rank_j"][0] == pytest.approx(frame.loc[1, "energy_job_j"])
    (answer,) = answered(frame.assign(power_source="modelled"))
    assert any("modelled from CPU" in note for note in tables.prediction_table([answer]).notes)


def test_too_few_counts_are_not_predicted():
    (answer,) = answered(runs((2,)))
    assert answer.model is None
    assert answer.to_measure == 1
    measured_on_1, one_rank = answer.observations.assign(ranks=1), {"nodes": 1, "ranks_per_node": 1}
    assert answers._choose_count_to_measure(measured_on_1, one_rank, 1, None) is None, "the machine has no other"
    table = tables.recommendation_table([answer], goals.load("fastest"))
    assert len(table.frame) == 0
    assert "measured on 2; measure on 1 rank too" in table.notes[0]


def test_a_series_of_one_count_beside_others_is_told():
    frame = pd.concat([runs(), runs((6,), batch_size=40, batch_size_per_rank=40)], ignore_index=True)
    (answer,) = answered(frame)
    assert len(answer.predictions) == 1 and len(answer.candidates) == 2
    notes = tables.recommendation_table([answer], goals.load("fastest")).notes
    assert any("batch size 40: measured on one rank count, so nothing is predicted" in note for note in notes)


def test_times_that_mix_the_first_epoch_are_told():
    """384 epochs are divided: the epochs of a rank change with the ranks, and no run has a steady time per epoch."""
    told = "times per epoch include an unknown part of the first epoch's overhead"
    assert any(told in note for note in tables.prediction_table(answered(runs())).notes)
    steady = runs().assign(time_per_epoch_steady_s=lambda frame: frame["time_per_epoch_s"])
    assert not any(told in note for note in tables.prediction_table(answered(steady)).notes)


@pytest.mark.parametrize(
    ("counts", "ranks", "told"),
    [
        ((1,), 1, "measured on 1; this machine carries 1 rank (2 cores), so measure on 2 ranks on a larger one"),
        ((1,), 2, "measured on 1; measure on 2 ranks too"),
    ],
)
def test_counts_that_the_machine_does_not_carry_are_for_a_larger_one(counts, ranks, told):
    carried = Capacity(ranks, "2 cores", "cores")
    on = {"nodes": 1000, "ranks_per_node": 6}
    (answer,) = answer_workloads(settings.select_runs(runs(counts)).used, {}, on, carried=carried)
    assert told in tables.recommendation_table([answer], goals.load("fastest")).notes[0]


def recommended(frame, goal):
    (answer,) = answered(frame)
    (series,) = answer.candidates
    doubts = [each for wrong in answer.misfits.values() for each in wrong]
    return recommend(answer.predictions[series], goal, answer.failures[series], doubts)


def test_the_fastest_efficient_count_is_recommended():
    found = recommended(runs(), Goal("g", "", "runtime_s", (Limit("efficiency", None, 0.7),)))
    # Efficiency: 3870 / (N x (384 / N x epoch + 30)); 0.7 at about 48.
    assert found.pick in (24, 48)
    assert "with efficiency at least 0.7" in found.reason
    assert found.candidates["recommended"].sum() == 1


FASTEST = Goal("g", "", "runtime_s")


def failed(gpus, repeats, kind="oom"):
    return pd.DataFrame([run(gpus, each, status="failed", runtime_s=50.0, failure_kind=kind) for each in repeats])


def test_a_count_whose_runs_fail_is_not_recommended_nor_any_larger_one():
    """Nor is it advised to measure there. Without the failures, 96 or more would be recommended."""
    found = recommended(pd.concat([runs((1, 2, 6, 12)), failed(24, (1, 2, 3))], ignore_index=True), FASTEST)
    assert found.pick == 12
    assert "Excluded: 24, as 3 of 3 runs on 24 ranks failed (oom 3)." in found.reason
    candidates = found.candidates.set_index("ranks")
    assert candidates["excluded_by"][48] == "3 of 3 runs on 24 ranks failed (oom 3), and no larger count succeeded"
    assert candidates["narrows_interval_by"][[24, 48]].isna().all()


@pytest.mark.parametrize("message", [None, "its batch job 7 was lost (no exit status), as an earlier one was"])
def test_runs_that_were_lost_with_a_host_say_nothing_of_their_rank_count(message):
    """As in findings. 3 of 3 on 24 ranks were lost: 24 and 48 may be recommended, and the answer tells what is missing.

    Of 2 lost and 1 out of memory, the latter is 1 of 1.
    """
    kind = "killed" if message else "host_lost"
    lost = failed(24, (1, 2, 3), kind).assign(failure_message=message)
    frame = pd.concat([runs((1, 2, 6, 12)), lost], ignore_index=True)
    assert recommended(frame, FASTEST).candidates.set_index("ranks")["excluded_by"][[24, 48]].isna().all()
    assert settings.select_runs(frame).left_out == {f"lost with a host or a batch job ({kind} 3) on 24 ranks": 3}
    frame.loc[frame["repeat"].eq(3) & frame["gpus"].eq(24), ["failure_kind", "failure_message"]] = ["oom", None]
    assert "Excluded: 24, as 1 of 1 run on 24 ranks failed (oom 1)." in recommended(frame, FASTEST).reason


@pytest.mark.parametrize(("bad", "pick"), [(9, False), (2, False), (1, True)])
def test_a_count_is_recommended_if_its_runs_succeed_as_often_as_the_goal_demands(bad, pick):
    """Of ten runs on 24 ranks one may fail where the limits must hold with a probability of 0.9."""
    good = pd.DataFrame([run(24, each) for each in range(bad + 1, 11)])
    frame = pd.concat([runs((1, 2, 6, 12)), good, failed(24, range(1, bad + 1))], ignore_index=True)
    excluded = recommended(frame, FASTEST).candidates.set_index("ranks")["excluded_by"]
    assert excluded.isna()[24] == pick
    assert excluded.isna()[48] == pick


def test_failures_on_few_ranks_do_not_exclude_larger_counts():
    """One rank reached its time limit; 6 to 24 did not."""
    frame = pd.concat([runs((2, 6, 12, 24)), failed(1, (1, 2), "timeout")], ignore_index=True)
    assert recommended(frame, FASTEST).pick == 192


@pytest.mark.slow
def test_failures_of_another_workload_exclude_nothing():
    frame = pd.concat([runs(), failed(24, (1, 2)).assign(loader="npy")], ignore_index=True)
    assert recommended(frame, FASTEST).pick == 192


@pytest.mark.parametrize("repeats", [1, 2])
def test_measured_counts_are_judged_by_their_measurements(repeats):
    """24 ranks were slower than 12, which no mechanism explains: nothing that was not measured is recommended."""
    frame = runs((1, 2, 6, 12, 24))
    frame = frame[frame["repeat"] <= repeats].copy()
    is_slow = frame["gpus"] == 24
    frame.loc[is_slow, "time_per_epoch_s"] *= 12
    frame.loc[is_slow, "runtime_s"] = 16 * frame["time_per_epoch_s"] + 30
    found = recommended(frame, FASTEST)
    assert found.pick == 12
    assert "measured runtime_s" in found.reason
    assert "the model does not fit what was measured" in found.reason
    unmeasured = found.candidates[found.candidates["decided_by"] == "prediction"]
    assert unmeasured["excluded_by"].notna().all()
    assert found.candidates["narrows_interval_by"].isna().all()


@pytest.mark.slow
def test_repeats_that_contradict_the_fit_are_not_taken_for_its_noise():
    """12 ranks take 20 % longer than fits the others, in each of two repeats 0.1 % apart; the fit's noise covers it."""
    frame = runs((1, 2, 6, 12, 24))
    is_slow = frame["gpus"] == 12
    frame.loc[is_slow, "time_per_epoch_s"] *= 1.2
    frame.loc[is_slow, "runtime_s"] = 32 * frame["time_per_epoch_s"] + 30
    (answer,) = answered(frame)
    (misfit,) = (each for wrong in answer.misfits.values() for each in wrong)
    assert misfit.ranks == 12
    assert misfit.measured > misfit.high
    assert recommended(frame, FASTEST).pick == 24


@pytest.mark.slow
def test_an_energy_that_the_model_does_not_fit_concerns_goals_of_energy_only():
    frame = with_energy(runs())
    frame.loc[frame["gpus"] == 6, "energy_job_j"] *= 6
    assert recommended(frame, FASTEST).pick == 192
    found = recommended(frame, Goal("g", "", "energy_job_j"))
    assert found.pick != 6
    assert "J on 6 ranks" in found.reason


@pytest.mark.slow
def test_a_count_far_beyond_the_measured_ones_is_never_recommended():
    """Where the model fits, larger counts are. Only new counts are advised to be measured, and none too far away."""
    found = recommended(runs(), FASTEST)
    assert found.pick == 192  # 8 x 24; 384 is shown
    assert "predicted runtime_s" in found.reason and "does not fit" not in found.reason
    candidates = found.candidates.set_index("ranks")
    assert candidates["excluded_by"][384] == "more than 8 times the largest measured count"
    narrows = candidates["narrows_interval_by"]
    assert narrows[192] > narrows[8] and math.isnan(narrows[384]) and math.isnan(narrows[1])


def test_an_impossible_goal_says_which_limit_excludes_which_count():
    found = recommended(runs(), Goal("g", "", "runtime_s", (Limit("runtime_s", 1.0, None),)))
    assert found.pick is None
    assert found.reason.startswith(
        "no count meets the goal: runtime_s at most 1 excludes 1, 2, 4, 6, 8, 12, 16, 24, 48"
    )


@pytest.mark.slow
def test_accuracy_is_not_extrapolated():
    """Good up to 6 ranks, bad on 24; unknown on 12, and beyond 24 no better."""
    frame = runs()
    frame["test_accuracy"] = np.where(frame["gpus"] <= 6, 1.0, 0.5)
    frame.loc[frame["gpus"] == 12, "test_accuracy"] = math.nan
    found = recommended(frame, Goal("g", "", "runtime_s", (Limit("test_accuracy", None, 0.9),)))
    assert found.pick == 6
    excluded = found.candidates.set_index("ranks")["excluded_by"]
    assert excluded[24] == "test_accuracy at least 0.9", "equal rates in single and double precision are equal"
    assert excluded[12] == "test_accuracy at least 0.9 (not known there)"
    assert excluded[24] == excluded[48] == "test_accuracy at least 0.9"


@pytest.mark.slow
def test_a_limit_of_gpu_memory_is_judged_by_the_batch_of_a_rank():
    """Each count has the same batch here: measured counts decide for those that were not measured."""
    limit = (Limit("gpu_memory_mb", 16_000, None),)
    frame = runs().assign(gpu_memory_mb=15_000.0)
    fits = recommended(frame, Goal("g", "", "runtime_s", limit))
    assert fits.pick is not None
    assert not fits.candidates["excluded_by"].astype(str).str.contains("gpu_memory_mb").any()
    frame.loc[frame["gpus"] == frame["gpus"].max(), "gpu_memory_mb"] = 17_000.0
    excluded = recommended(frame, Goal("g", "", "runtime_s", limit)).candidates.set_index("ranks")["excluded_by"]
    assert excluded[frame["gpus"].max()] == "gpu_memory_mb at most 16000"
    assert pd.isna(excluded[1]), "its own measurement decides"


@pytest.mark.parametrize(
    ("batch", "verdict"), [(10, "met"), (20, "met"), (30, "unknown"), (40, "not met"), (50, "not met")]
)
def test_gpu_memory_grows_with_the_batch_of_a_rank(batch, verdict):
    known = pd.DataFrame({"ranks": [1, 1], "batch": [20, 40], "gpu_memory_mb": [9_000.0, 17_000.0]})
    candidate = pd.DataFrame({"ranks": [2], "batch": [batch]})
    assert judge_limit(known, candidate, Limit("gpu_memory_mb", 16_000, None)) == [verdict]


ACCURATE = Goal("g", "", "runtime_s", (Limit("test_accuracy", None, 0.95),))


def _recommended_by_batch(frame, batch):
    (answer,) = answered(frame)
    series = next(each for each in answer.candidates if batch in each)
    return recommend(answer.predictions[series], ACCURATE)


@pytest.mark.slow
def test_accuracy_of_other_batches_says_nothing():
    """Of a rank's batch of 20 all runs are good; of 320 those on 1 rank, or those on more are not."""
    small = runs()
    large = runs(batch_size=320, batch_size_per_rank=320)
    large["record"] = large["record"] + "-320"
    bad = large.assign(test_accuracy=np.where(large["gpus"] > 1, 0.55, 1.0))
    assert _recommended_by_batch(pd.concat([small, bad]), 20).pick >= 24
    assert _recommended_by_batch(pd.concat([small, bad]), 320).pick == 1
    one = large[large["gpus"] <= 6].assign(test_accuracy=lambda frame: frame["test_accuracy"].where(frame["gpus"] == 1))
    one = _recommended_by_batch(pd.concat([small, one]), 320)
    assert one.pick == 1
    assert one.candidates.set_index("ranks")["excluded_by"][2] == "test_accuracy at least 0.95 (not known there)"


@pytest.mark.slow
def test_accuracy_of_a_larger_batch_is_not_known():
    """Batch scaling: the rate stays, the batch of a rank grows."""
    frame = runs((1, 2, 4), batch_scaling="linear", learning_rate_scaling="none", learning_rate_used=0.001)
    frame = frame.assign(scaling="batch", epochs_per_rank=384, batch_size_per_rank=20 * frame["gpus"])
    frame["runtime_s"] = 384 * frame["time_per_epoch_s"] + 30
    excluded = recommended(frame, ACCURATE).candidates.set_index("ranks")["excluded_by"]
    assert excluded[[1, 2, 4]].isna().all()
    assert excluded[8] == "test_accuracy at least 0.95 (not known there)"
    frame.loc[frame["gpus"] == 4, "test_accuracy"] = 0.6
    excluded = recommended(frame, ACCURATE).candidates.set_index("ranks")["excluded_by"]
    assert excluded[[1, 2]].isna().all()
    assert excluded[4] == "test_accuracy at least 0.95"


@pytest.mark.slow
def test_each_repeat_must_reach_the_accuracy():
    frame = runs().assign(test_accuracy=1.0)
    frame.loc[frame["record"] == "runs/6-2/record.json", "test_accuracy"] = 0.91
    excluded = recommended(frame, ACCURATE).candidates.set_index("ranks")["excluded_by"]
    assert excluded[6] == "test_accuracy at least 0.95"


@pytest.mark.slow
def test_energies_of_the_gpus_are_not_taken_for_those_of_the_job():
    frame = with_energy(runs())
    frame["energy_per_gpu_j"] = frame["energy_job_j"] / frame["gpus"] / 2
    some = frame.assign(energy_job_j=frame["energy_job_j"].where(frame["repeat"] == 1))
    (answer,) = answered(some)
    assert not answer.of_gpus
    assert answer.observations["energy_per_rank_j"][0] == pytest.approx(frame["energy_job_j"][0]), "of one kind"
    (answer,) = answered(frame.assign(energy_job_j=math.nan))
    assert answer.of_gpus
    assert any("is the energy of the GPUs only" in note for note in tables.prediction_table([answer]).notes)
    table = tables.recommendation_table([answer], goals.load("least_energy"))
    assert any("is the energy of the GPUs only" in note for note in table.notes)


@pytest.mark.slow
@pytest.mark.parametrize(("repeats", "noise"), [(3, 0.1), (10, 0.05)])
def test_intervals_are_of_a_single_run_however_many_repeats_were_measured(repeats, noise):
    random, holds = np.random.default_rng(1), []
    for _ in range(8):
        rows = []
        for gpus in (1, 2, 6, 12, 24):
            for repeat in range(1, repeats + 1):
                factor = math.exp(noise * random.standard_normal())
                plain = run(gpus)
                epoch = plain["time_per_epoch_s"] * factor
                rows.append(run(gpus, repeat, time_per_epoch_s=epoch, runtime_s=plain["epochs_per_rank"] * epoch + 30))
        (answer,) = answered(pd.DataFrame(rows))
        (found,) = answer.predictions.values()
        place = found.settings["ranks"].tolist().index(24)
        low, _, high = (each[place] for each in found.interval("runtime_s"))
        single = run(24)["time_per_epoch_s"] * np.exp(noise * random.standard_normal(500)) * 16 + 30
        holds.append(((low <= single) & (single <= high)).mean())
    assert 0.8 <= np.mean(holds) <= 0.98


def test_the_noise_of_runs_to_do_averages_out():
    """Of ten repeats with 5 % noise, 1.645 x 5 % / sqrt(10) = 2.6 %."""
    random, rows = np.random.default_rng(1), []
    for gpus in (1, 2, 6, 12, 24):
        for repeat in range(1, 11):
            epoch = run(gpus)["time_per_epoch_s"] * math.exp(0.05 * random.standard_normal())
            rows.append(run(gpus, repeat, time_per_epoch_s=epoch, runtime_s=384 // gpus * epoch + 30))
    (answer,) = answered(pd.DataFrame(rows))
    (found,) = answer.predictions.values()
    place = found.settings["ranks"].tolist().index(24)
    draws, means = ({"runtime_s": each["runtime_s"][[place]]} for each in (found.draws, found.means))
    one = dataclasses.replace(found, draws=draws, means=means)
    rng = np.random.default_rng(1)
    total = np.sum([forecasts.draw_single_run(one, "runtime_s", rng) for _ in range(10)], axis=0)
    low, median, high = np.quantile(total, [0.05, 0.5, 0.95])
    assert 0.01 < (high - low) / 2 / median < 0.045


@pytest.mark.slow
def test_the_energy_of_a_part_of_the_runs_is_told_as_such():
    """Of two workloads, one has energies."""
    left = [*expand(gpus=[1, 2, 4]), *expand(gpus=[1, 2, 4], loader="chunked")]
    rows = [{**run(each.gpus), **each.parameters, "dataset": each.dataset.id, "epochs_per_rank": each.epochs_per_rank,
             "repeat": 1, "samples_per_rank": 100, "train_samples": 100} for each in left]  # fmt: skip
    frame = pd.DataFrame(rows)
    frame["runtime_s"] = frame["epochs_per_rank"] * frame["time_per_epoch_s"] + 30
    frame = with_energy(frame)
    frame.loc[frame["loader"] == "chunked", "energy_job_j"] = math.nan
    on = machine.load("local")
    found = list(answer_workloads(settings.select_runs(frame).used, {}, on))
    _, told = forecasts._format_lines(left, found, on)
    assert told.endswith(" kWh by 3 of these runs")
    _, told = forecasts._format_lines([each for each in left if each["loader"] == "read_csv"], found, on)
    assert told.endswith(" kWh")


@pytest.mark.parametrize(
    ("goal", "reason"),
    [(goals.load("least_energy"), "energy_job_j is unknown"),
     (Goal("g", "", "runtime_s", (Limit("gpu_memory_mb", 16_000, None),)), "no run has gpu_memory_mb"),
     (Goal("g", "", "runtime_s", (Limit("test_accuracy", None, 0.9),)), "no run has test_accuracy")],
)  # fmt: skip
def test_a_goal_of_what_no_run_has_gives_no_recommendation(goal, reason):
    found = recommended(runs(test_accuracy=math.nan), goal)
    assert found.pick is None and reason in found.reason


def test_limits_of_draws_and_of_accuracy_hold_together():
    frame = runs()
    frame["test_accuracy"] = np.where(frame["gpus"] <= 6, 1.0, 0.5)
    limits = (Limit("efficiency", None, 0.5), Limit("runtime_s", 3600.0, None), Limit("test_accuracy", None, 0.9))
    assert recommended(frame, Goal("g", "", "runtime_s", limits)).pick == 6


@pytest.mark.parametrize(
    ("scaling", "sharding", "words"),
    [("weak", "none", "under weak scaling the work grows with the ranks"), ("weak", "by_rank", None),
     ("strong", "by_rank", "under strong scaling the work falls with the ranks, as they share epochs and samples"),
     ("strong", "none", None)],
)  # fmt: skip
def test_counts_are_recommended_for_one_amount_of_work(scaling, sharding, words):
    settings = pd.DataFrame({"scaling": [scaling] * 2, "sharding": sharding, "ranks": [1, 4], "nodes": [1, 1]})
    runtime = np.array([[100.0], {"by_rank": {"weak": [25.0], "strong": [6.25]}}.get(sharding, {}).get(
        scaling, [25.0 if scaling == "strong" else 100.0])])  # fmt: skip
    assert derive_quantities(settings, {"runtime_s": runtime}, None)["efficiency"] == pytest.approx(1)
    assert describe_changing_work(settings) == words


def test_counts_that_a_study_refuses_are_no_candidates():
    """P1B1 needs four epochs per rank; nine epochs cannot be divided by two ranks."""
    series = answered(runs())[0].observations.iloc[0]
    assert settings.derive_settings_at_counts(series, [1, 96, 128, 192], 6, least_epochs=4)["ranks"].tolist() == [1, 96]
    (answer,) = answered(runs((1,)).assign(epochs=9, epochs_per_rank=9))
    assert answer.to_measure == 3


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("time_per_epoch_steady_s", 0.0, "its time_per_epoch_steady_s is 0.0"),
        ("time_per_epoch_steady_s", 1e5, "an epoch of 1e+05 s"),
        ("load_s", math.nan, "it has no load_s"),
        ("energy_job_j", -5.0, "its energy_job_j is -5.0"),
    ],
)
def test_a_run_with_an_impossible_value_is_left_out(column, value, words):
    frame = with_energy(runs())
    frame.loc[0, column] = value
    found = settings.select_runs(frame)
    assert len(found.used) == len(frame) - 1
    assert words in found.problems[0]


@pytest.mark.slow
def test_held_out_points_are_compared_with_naive_fits():
    (answer,) = answered(runs())
    found = check_held_out(answer.held_out)
    assert found["ranks"].tolist() == [1, 2, 6, 12, 24]
    assert found["within_interval"].mean() > 0.5
    assert found["error"].abs().max() < 0.2
    assert found["naive_log_error"].abs().max() < 1e-6 < 1e-3 < found["naive_linear_error"].abs().max(), "as they grow"


@pytest.mark.slow
def test_the_same_runs_give_the_same_tables():
    def made():
        found = computed(with_energy(runs()))
        all_tables = (
            tables.prediction_table(found),
            tables.check_table(found),
            tables.recommendation_table(found, goals.load("balanced")),
        )
        return [table.markdown() for table in all_tables] + [table.frame.to_csv() for table in all_tables]

    assert made() == made()


@pytest.mark.slow
def test_every_predicted_column_says_so():
    found = answered(with_energy(runs()))
    for table in (tables.prediction_table(found), tables.recommendation_table(found, goals.load("balanced"))):
        measured = [name for name in table.frame if name.endswith(("_s", "_j", "_w", "_js")) and name not in PARAMETERS]
        assert all(name.startswith(("predicted_", "measured_")) for name in measured)


@pytest.mark.slow
def test_the_figure_shows_runtime_and_energy(tmp_path):
    data = prediction_drawing.select(answered(with_energy(runs())), "test", "m")
    figure = prediction_drawing.draw(data)
    assert [axes.get_ylabel() for axes in figure.axes] == ["runtime (s)", "energy of the job (J)"]
    labels = [text.get_text() for axes in figure.axes for text in axes.get_legend().get_texts()]
    assert {"90 % interval, predicted", "measured", "Pareto front, predicted"} <= set(labels)
    drawing.write_figure(prediction_drawing.draw, data, tmp_path / "a.svg", tmp_path / "a.pdf")
    drawing.write_figure(prediction_drawing.draw, data, tmp_path / "b.svg", tmp_path / "b.pdf")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_modelled_energies_and_those_of_gpus_are_not_drawn_as_measured_ones_of_the_job():
    ends = (np.array([9.0, 5.0]), np.array([10.0, 6.0]), np.array([11.0, 7.0]))
    points = pd.DataFrame({"ranks": [1, 2], "runtime_s": [10.0, 6.0], "energy_per_rank_j": [100.0, 60.0]})
    curve = prediction_drawing.Curve("t", np.array([1.0, 2.0]), ends, ends, points, 2, "the GPUs", "modelled")
    axes = prediction_drawing.draw(prediction_drawing.PredictionData("p", "t", "c", [curve])).axes
    assert axes[1].get_ylabel() == "energy of the GPUs (J)"
    labels = [[text.get_text() for text in each.get_legend().get_texts()] for each in axes]
    assert "measured" in labels[0] and "measured" not in labels[1]
    assert "measured time, modelled energy" in labels[1]


def test_a_count_that_is_not_drawn_beats_none_of_the_front():
    """64 ranks would take less of both, and are more than 8 times the largest measured count."""
    ranks, seconds, joules = np.array([1.0, 2.0, 64.0]), np.array([10.0, 6.0, 1.0]), np.array([5.0, 8.0, 1.0])
    points = pd.DataFrame({"ranks": [1, 2], "runtime_s": [10.0, 6.0], "energy_per_rank_j": [5.0, 4.0]})
    curve = prediction_drawing.Curve("t", ranks, (seconds,) * 3, (joules,) * 3, points, 2, "the job", "measured")
    _, axes = prediction_drawing.draw(prediction_drawing.PredictionData("p", "t", "c", [curve])).axes
    (front,) = (line for line in axes.lines if line.get_label() == "Pareto front, predicted")
    assert front.get_xydata().tolist() == [[10, 5], [6, 8]]


@pytest.mark.slow
@pytest.mark.parametrize("paper", published.list_papers())
def test_published_points_are_predicted(paper):
    found = published.predict_paper(paper)
    assert found["published"].notna().all()
    assert found[found["fitted"] & (found["quantity"] == "time_per_epoch_s")]["error"].abs().max() < 0.05
    assert set(found["fitted"]) == {True, False}
