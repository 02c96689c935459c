"""What a prediction rests on: scatter of repeats, failures, measured accuracies, and runs that are alike."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from test_prediction import FASTEST, computed, failed, recommended, run, runs, with_energy

from study.prediction import runtime_model, settings
from study.prediction.accuracy import judge_limit
from study.prediction.evidence import draw_judged, estimate_deviations
from study.prediction.goals import Goal, Limit
from study.prediction.runtime_model import estimate_variances
from study.prediction.scaling_model import load_calibration

LEAST_ENERGY = Goal("g", "", "energy_job_j")
ACCURATE = Goal("g", "", "runtime_s", (Limit("test_accuracy", None, 0.9),))


def three_repeats(joules):
    """Runs on 1, 2 and 6 ranks, three repeats each. joules: energy of a rank in each of them."""
    return pd.DataFrame([
        run(gpus, repeat, power_source="measured", energy_job_j=gpus * value)
        for gpus in (1, 2, 6) for repeat, value in enumerate(joules, 1)
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("joules", "deviation", "freedom"),
    [
        ((100.0, math.nan, math.nan), math.nan, 0),
        # Squares of +-10 % at each of three points: (3 x 0.02) / (3 x 1), the root of which is 14.1 %.
        ((90.0, 110.0, math.nan), math.sqrt(0.02), 3),
        ((90.0, 100.0, 110.0), 0.1, 6),
    ],
)
def test_energies_scatter_as_often_as_there_are_some(joules, deviation, freedom):
    found = settings.summarize_points(three_repeats(joules))
    known = sum(not math.isnan(value) for value in joules)
    assert found["energy_per_rank_j_repeats"].tolist() == [known] * 3
    assert found["runtime_s_repeats"].tolist() == [3] * 3
    of_first = estimate_deviations(found, "energy_per_rank_j").iloc[0]
    assert of_first.tolist() == [pytest.approx(deviation, nan_ok=True), freedom]


def test_a_disturbed_repeat_at_one_count_makes_only_that_count_unsure():
    """Deviations of 1 % on 1 and 6 ranks; on 2, one of three runs took ten times the energy."""
    frame = three_repeats((99.0, 100.0, 101.0))
    frame.loc[(frame["gpus"] == 2) & (frame["repeat"] == 3), "energy_job_j"] = 2 * 1000.0
    found = settings.summarize_points(frame)
    own = np.std([99, 100, 1000], ddof=1) / np.mean([99, 100, 1000])
    told = estimate_deviations(found, "energy_per_rank_j")
    assert told["deviation"].tolist() == pytest.approx([0.01, own, 0.01])
    assert told["freedom"].tolist() == [4, 2, 4]
    variances, freedom, further = estimate_variances(np.zeros(2), np.zeros(2))
    assert np.sqrt(variances) == pytest.approx(load_calibration()["noise"]), "nothing was repeated"
    assert (freedom.tolist(), further) == ([0, 0], 0)


def test_a_run_at_a_measured_count_scatters_around_the_mean_of_its_repeats():
    """By 10 %, of which 6 degrees of freedom tell: t(0.95, 6) = 1.943. The mean of three repeats is uncertain too."""
    (prediction,) = computed(three_repeats((90.0, 100.0, 110.0)))[0].predictions.values()
    draws, is_measured = draw_judged(prediction)
    assert prediction.settings["ranks"][is_measured].tolist() == [1, 2, 6]
    for name, means in (("energy_per_rank_j", [100] * 3), ("energy_job_j", [100, 200, 600])):
        low, median, high = np.quantile(draws[name][is_measured], [0.05, 0.5, 0.95], axis=1)
        assert median == pytest.approx(means)
        assert high / median - 1 == pytest.approx(0.1 * math.sqrt(4 / 3) * 1.943, rel=0.06)
        assert 1 - low / median == pytest.approx(0.1 * math.sqrt(4 / 3) * 1.943, rel=0.06)


def test_the_overhead_of_first_epochs_grows_with_the_ranks_by_weighted_least_squares():
    """3 s on one rank, 3.6 s on 2, 4.4 s on 4: errors are relative to the first epoch, of 4.6 and 5.4 s."""
    timed = pd.DataFrame(
        {"ranks": [1.0, 2, 4], "epochs_per_rank": 10.0, "_steady": 1.0, "mean_epoch_s": [1.3, 1.36, 1.44]}
    )
    found = runtime_model._fit_first_epochs(timed)
    more, rest = np.array([1 / 4.6, 3 / 5.4]), np.array([0.6 / 4.6, 1.4 / 5.4])
    slope = more @ rest / (more @ more)
    error = math.sqrt(((rest - slope * more) ** 2).sum() / (more @ more))
    assert (found.at_smallest, found.per_rank) == pytest.approx((3, slope))
    assert found.error == pytest.approx(error / slope) and found.error < 0.1
    assert found.predict(np.array([1, 5])) == pytest.approx([3, 3 + 4 * slope])
    assert runtime_model._fit_first_epochs(timed.assign(mean_epoch_s=[1.3, 1.42, 1.32])).error == 1, "at most: it is 2"


def test_the_overhead_that_numbers_of_epochs_tell_has_the_same_relative_error_in_any_unit():
    rows = [(ranks, epochs, 10 / ranks + (3 + 0.5 * (ranks - 1)) / epochs) for epochs in (4, 8) for ranks in (1, 2, 4)]
    timed = pd.DataFrame(rows, columns=["ranks", "epochs_per_rank", "mean_epoch_s"])
    timed["mean_epoch_s"] *= [1.001, 0.999, 1.001, 1, 1.001, 0.999]
    one, thousand = (runtime_model._infer_first_epochs(timed.assign(mean_epoch_s=unit * timed["mean_epoch_s"]),
                                                       pd.Series("x", timed.index)) for unit in (1, 1000))  # fmt: skip
    assert (one.at_smallest, one.per_rank) == pytest.approx((3, 0.5), rel=0.1) and one.ranks == (1, 4)
    assert (thousand.at_smallest, thousand.per_rank) == pytest.approx((1000 * one.at_smallest, 1000 * one.per_rank))
    assert thousand.error == pytest.approx(one.error, rel=1e-3) and 0 < one.error < 1


def test_an_energy_of_one_repeat_is_not_taken_for_certain():
    """Its interval is that of the fit; it had no width."""
    frame = with_energy(runs((1, 2, 6)))
    frame["energy_job_j"] = frame["energy_job_j"].where(frame["repeat"] == 1)
    reason = recommended(frame, LEAST_ENERGY).reason
    median, low, high = map(float, re.search(r"measured energy_job_j (\S+) \((\S+) to (\S+)\)", reason).groups())
    assert low < 0.995 * median < 1.005 * median < high


def test_of_two_measured_counts_one_whose_runs_fail_does_not_suit_the_goal():
    """8 ranks take 100 s, but two of three runs there failed; three on 4 ranks took 180 s."""
    four = [run(4, repeat, time_per_epoch_s=1.5, runtime_s=180.0) for repeat in (1, 2, 3)]
    eight = pd.DataFrame([run(8, 1, time_per_epoch_s=1.5, runtime_s=100.0)])
    frame = pd.concat([pd.DataFrame(four), eight, failed(8, (2, 3))], ignore_index=True)
    found = recommended(frame, FASTEST)
    assert found.pick != 8
    assert "Excluded: 8, as 2 of 3 runs on 8 ranks failed (oom 2)" in found.reason
    assert recommended(frame, Goal("g", "", "runtime_s", probability=0.3)).candidates["excluded_by"][1] is None


@pytest.mark.parametrize(
    "changes",
    [{"learning_rate_used": 1e-6, "learning_rate_decay": "cosine"}, {"learning_rate_used": math.nan},
     {"learning_rate": math.nan, "learning_rate_used": math.nan}],
)  # fmt: skip
def test_a_measured_accuracy_counts_whatever_the_learning_rate_became(changes):
    excluded = recommended(runs((1, 2, 6), **changes), ACCURATE).candidates.set_index("ranks")["excluded_by"]
    assert excluded[[1, 2, 6]].isna().all()


def judged(frame, ranks, series=0):
    points = settings.summarize_points(frame).assign(
        sharding="none", learning_rate_scaling="linear", train_samples=1120
    )
    first = points.drop_duplicates(settings.SERIES).iloc[series]
    return judge_limit(points, settings.derive_settings_at_counts(first, ranks, 6), ACCURATE.limits[0])


def test_rates_of_other_counts_are_compared_before_their_decay():
    """On 8 ranks the rate began at 0.008 and ended at 0.004, which is where that of 4 ranks begins."""
    frame = runs((1, 2, 8), scaling="weak", epochs=4, epochs_per_rank=4)
    frame = frame.assign(
        learning_rate_used=frame["learning_rate_used"] / 2, test_accuracy=np.where(frame["gpus"] == 8, 0.5, 1.0)
    )
    assert judged(frame, [1, 2, 4, 8, 16]) == ["met", "met", "unknown", "not met", "not met"]


def test_a_measured_accuracy_is_that_of_its_own_series():
    """On slower links the same training reached less, which does not change what was measured on faster ones."""
    slow, fast = runs((1, 2), test_accuracy=0.5, link_mbit_per_s=20), runs((1, 2), link_mbit_per_s=100)
    both = pd.concat([slow, fast], ignore_index=True)
    assert [judged(both, [1, 2], series) for series in (0, 1)] == [["not met"] * 2, ["met"] * 2]


def test_runs_that_shared_a_host_are_left_out_and_counted():
    frame = runs()
    frame["overlapped"] = frame["record"].isin(["runs/6-1/record.json", "runs/24-2/record.json"])
    found = settings.select_runs(frame)
    assert len(found.used) == 8
    assert found.left_out == {"another run was on its host at the same time": 2}
    # The start of each run is that of the one before plus 10,000 s, but the last begins 1 s after the one before.
    starts = 10**18 + 10**13 * np.arange(len(frame))
    starts[-1] = starts[-2] + 10**9
    found = settings.select_runs(runs().assign(started_wall_ns=starts))
    assert found.left_out == {"another run was on its host at the same time": 2}
    assert sorted(set(found.used["gpus"])) == [1, 2, 6, 12]


@pytest.mark.parametrize(("number", "told"), [(3, []), (4, ["4 of 10 runs"])])
def test_disturbed_runs_are_used_and_told_if_they_are_many(number, told):
    frame = runs()
    found = settings.select_runs(frame.assign(disturbed=[True] * number + [None] * (len(frame) - number)))
    assert len(found.used) == 10
    assert found.problems == [f"Other use of the hosts disturbed {each} (runs.csv, disturbed_by)." for each in told]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("data_checksum", "several versions of the data"),
        ("communication_libraries", "several communication libraries"),
        ("memory_mode", "several memory modes"),
        ("system", "several operating systems, versions of Python or table parsers"),
        ("packages", "several versions of the libraries"),
    ],
)
def test_runs_after_an_update_are_not_mixed_with_those_before(column, told):
    old = runs((1, 2, 6)).assign(started_wall_ns=1, hosts="n1", **{column: "torch 1"})
    new = runs((12, 24, 48)).assign(started_wall_ns=2, hosts="n1", **{column: "torch 2"})
    found = settings.select_runs(pd.concat([old, new], ignore_index=True))
    assert sorted(set(found.used["gpus"])) == [12, 24, 48]
    assert found.left_out == {f"unlike the runs that are used ({told})": 6}


@pytest.mark.parametrize("column", ["hardware", "job_options"])
def test_what_the_rank_count_may_change_makes_no_other_version(column):
    frame = runs((1, 2, 6)).assign(started_wall_ns=1)
    found = settings.select_runs(frame.assign(**{column: frame["gpus"].astype(str)}))
    assert (len(found.used), found.left_out) == (6, {})


def test_another_operating_system_on_other_hosts_makes_no_other_version():
    frame = runs((1, 2, 6)).assign(started_wall_ns=1)
    names = np.where(frame["gpus"] == 6, "n2", "n1")
    assert len(settings.select_runs(frame.assign(hosts=names, system=names)).used) == 6
    assert len(settings.select_runs(frame.assign(hosts="n1", system=names)).used) == 4


def test_a_value_that_is_missing_is_taken_to_be_alike():
    """A failed run tells no libraries: its failure counts nevertheless."""
    good = runs((1, 2, 6)).assign(communication_libraries="mpi 5", started_wall_ns=2)
    good.loc[0, "communication_libraries"] = None
    old = runs((12,)).assign(communication_libraries="mpi 4", started_wall_ns=1)
    frame = pd.concat([good, old, failed(24, (1,)).assign(started_wall_ns=3)], ignore_index=True)
    found = settings.select_runs(frame)
    assert sorted(found.used["gpus"]) == [1, 1, 2, 2, 6, 6]
    assert found.failed["gpus"].tolist() == [24]
    assert found.left_out == {
        "unlike the runs that are used (several communication libraries)": 2,
        "failed (oom 1) on 24 ranks": 1,
    }
