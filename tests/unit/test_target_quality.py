"""Time and energy to a target quality, from histories whose answer is known."""

import copy
import math

import pandas as pd
import pytest
import timelines
from examples import STUDY, define, expand

from study.core.files import write_json
from study.experiment import expansion
from study.experiment.target import Target
from study.instruments.power.sampler import COLUMNS
from study.records.record import make_record
from study.records.targets import to_target
from study.records.tidy import loading_frame, read_runs, runs_frame
from study.report.tables import TABLES
from study.report.tables.scaling import LEAST_REPEATS, olympic_mean

EPOCHS_NS = timelines.epoch_edges_ns()[0]  # the begin of the first epoch of `make_run`
ACCURACY = Target("validation_accuracy", 0.95, True, "a test")
NO_LOADING = loading_frame([], "c0de", ".")
LEARNT, NEVER = [0.5, 0.96, 0.94, 0.99], [0.5, 0.6, 0.7, 0.8]
TRAIN = [("train", "begin", 1, -0.9), ("train", "begin", 0, -0.5), ("train", "end", 0, 4.5)]
STARTED = EPOCHS_NS - 10 * 10**9


@pytest.fixture
def derived(make_run):
    """The columns of one run of four epochs of 0.75 s that begin every second."""

    def derive(target=ACCURACY, **facts):
        (run,) = expand(gpus=1)
        usual = {"times": [0.75] * 4, "validation": LEARNT, "more_edges": TRAIN, "started": STARTED}
        folder = make_run(run, **(usual | facts))
        return to_target(folder, make_record(folder), target)

    return derive


def test_the_first_epoch_that_reaches_the_target_counts(derived):
    """The second epoch ends at 1.75 s; training began 0.5 s and the launcher 10 s before the first epoch."""
    found = derived()
    assert (found["quality_target"], found["target_reached"]) == ("validation_accuracy >= 0.95", True)
    assert found["epochs_to_target"] == 2
    assert found["launch_to_target_s"] == pytest.approx(11.75)
    assert found["training_to_target_s"] == pytest.approx(2.25)
    assert found["target_reason"] is None
    assert found["load_to_target_j"] is None
    assert "no power sensor here" in found["target_energy_reason"]


def test_a_run_that_diverged_did_not_reach_it(derived):
    found = derived(validation=[math.nan] * 4)
    assert (found["target_reached"], found["epochs_to_target"]) == (False, None)
    assert "is not finite" in found["target_reason"]


@pytest.mark.parametrize(
    ("facts", "target", "reason"),
    [
        ({}, None, "no target_quality is declared for nt3"),
        ({"status": "failed"}, ACCURACY, "the run failed"),
        ({}, Target("validation_correlation", 0.5, True, ""), "no validation: history.csv has no val_correlation"),
    ],
)
def test_what_cannot_be_told_is_neither_reached_nor_missed(derived, facts, target, reason):
    found = derived(target, **facts)
    assert (found["target_reached"], found["epochs_to_target"], found["target_reason"]) == (None, None, reason)


def test_a_resumed_run_has_epochs_but_no_times(derived):
    found = derived(resumed=1)
    assert (found["target_reached"], found["epochs_to_target"], found["launch_to_target_s"]) == (True, 2, None)
    assert "resumed" in found["target_reason"]


def test_the_clock_is_that_of_the_rank_that_wrote_the_history(make_run):
    """Of a command, the rank whose epochs count, which may be on the second host; rank 0 began to train before it."""
    (run,) = expand(gpus=1)
    edges = [("train", "begin", 1, -0.25), ("train", "begin", 0, -0.5), ("train", "end", 0, 4.5)]
    folder = make_run(run, validation=LEARNT, times=[0.75] * 4, more_edges=edges, started=STARTED)
    record, log = make_record(folder), (folder / "phases.jsonl").read_text().splitlines()
    moved = [line.replace('"n1"', '"n2"') if '"rank": 1' in line else line for line in log]
    (folder / "phases.jsonl").write_text("\n".join(moved) + "\n")
    for rank, seconds in ((1, 2.0), (0, 2.25)):
        found = to_target(folder, {**record, "program": {"rank": rank}}, ACCURACY)
        assert (found["launch_to_target_s"], found["training_to_target_s"]) == pytest.approx((11.75, seconds))


@pytest.mark.parametrize("step_s", [-30, 10])
def test_times_do_not_change_with_the_wall_clock(derived, step_s):
    found = derived(clock_set_s=step_s)
    assert (found["launch_to_target_s"], found["training_to_target_s"]) == pytest.approx((11.75, 2.25))
    assert "clock" not in found["target_energy_reason"], "of one host the clocks agree"


def test_without_a_name_of_its_own_a_host_has_no_time_since_the_launch(make_run):
    """Two machines are named n1, and nobody knows whose monotonic clock is the launching host's."""
    (run,) = expand(gpus=1)
    folder = make_run(run, validation=LEARNT, times=[0.75] * 4, more_edges=TRAIN, started=STARTED)
    found = make_record(folder)
    samplers = [{"host": "n1", "boot_id": boot, "devices": [], "reasons": {}} for boot in ("a", "b")]
    write_json(folder / "sensors.json", samplers)
    target = to_target(folder, found, ACCURACY)
    assert (target["launch_to_target_s"], target["load_to_target_j"]) == (None, None)
    assert target["target_reason"].startswith("launch_to_target_s: several machines are named n1")
    assert target["training_to_target_s"] == pytest.approx(2.25), "by one clock"


def test_energy_is_integrated_from_loading_to_the_target(make_run):
    """60 W from the load's begin at 1 s by the monotonic clock; the first epoch begins at 100 s."""
    (run,) = expand(gpus=1)
    folder = make_run(run, validation=LEARNT, times=[0.75] * 4, load=(2.0,), more_edges=TRAIN, started=STARTED)
    record = make_record(folder)
    rows = [
        {"monotonic_ns": tick * 10**8, "host": "n1", "sensor": "rapl", "kind": kind, "device": kind,
         "wall_ns": 0, "power_w": watts} for tick in range(1100) for kind, watts in (("cpu", 50), ("memory", 10))
    ]  # fmt: skip
    pd.DataFrame(rows).reindex(columns=COLUMNS).to_csv(folder / "telemetry.csv", index=False)
    found = to_target(folder, record, ACCURACY)
    assert found["load_to_target_j"] == pytest.approx(60 * (99 + 1.75), rel=1e-6)
    assert found["target_energy_reason"] is None


def test_a_loss_is_reached_from_above_and_float32_is_exact_enough():
    loss = Target("validation_loss", 0.025, False, "")
    assert (str(loss), loss.column) == ("validation_loss <= 0.025", "val_loss")
    assert loss.find_first_reached([0.04, 0.026, 0.024]) == 2
    assert ACCURACY.find_first_reached([0.949999988079071]) == 0, "Keras's float32 of 57 / 60"
    assert ACCURACY.find_first_reached([0.9499]) is None


def test_olympic_mean():
    assert olympic_mean([10, 1, 2, 3, 100]) == 5
    assert olympic_mean([10, 1, 2, 3, math.inf]) == 5, "one run that did not converge is the slowest"
    assert math.isnan(olympic_mean([10, 1, 2, math.inf, math.inf]))
    assert math.isnan(olympic_mean([1, 2]))
    assert math.isnan(olympic_mean([1, 2, 3, 4, math.nan])), "a value is missing"


@pytest.fixture
def table(make_recorded, tmp_path):
    """The table of one point's repeats, by their facts."""

    def make(*facts):
        runs = expand(gpus=1, repeats=len(facts))
        usual = {"times": [0.75] * 4, "validation": LEARNT, "more_edges": TRAIN, "runtime": 200.0}
        for run, given in zip(runs, facts, strict=True):
            make_recorded(run, **(usual | given))
        frame = runs_frame(runs, {"nt3": "c0de"}, tmp_path / "local", reads_targets=True)
        frame.to_csv(tmp_path / "runs.csv", index=False)
        return TABLES["time_to_quality"].make(read_runs(tmp_path / "runs.csv"), NO_LOADING)

    return make


def launched(*seconds_before):
    return [{"started": EPOCHS_NS - round(seconds * 1e9)} for seconds in seconds_before]


@pytest.mark.slow
def test_both_means_are_there_with_enough_repeats(table):
    (row,) = table(*launched(10, 1, 2, 3, 100)).frame.itertuples()
    assert (row.repeats_reached, row.repeats_not_reached, row.remark) == (5, 0, None)
    assert row.epochs_to_target == 2
    assert row.launch_to_target_s == pytest.approx(116 / 5 + 1.75)
    assert row.launch_to_target_ci95_s == pytest.approx(2.776 * 43.1243 / math.sqrt(5), rel=1e-3)
    assert row.launch_to_target_olympic_s == pytest.approx(5 + 1.75)
    assert row.training_to_target_olympic_s == pytest.approx(2.25)


@pytest.mark.slow
def test_one_run_that_does_not_converge_is_the_slowest_and_two_are_too_many(table, tmp_path):
    times = launched(10, 1, 2, 3, 100)
    missed = {"validation": NEVER}
    found = table(*times[:4], times[4] | missed)
    (row,) = found.frame.itertuples()
    assert (row.repeats_reached, row.repeats_not_reached) == (4, 1)
    assert row.launch_to_target_olympic_s == pytest.approx(5 + 1.75)
    assert row.launch_to_target_s == pytest.approx(16 / 4 + 1.75)
    assert row.remark == "1 did not reach the target"
    assert "failures to converge" in found.notes[0]


@pytest.mark.slow
def test_two_that_do_not_converge_leave_no_olympic_mean(table):
    times = launched(10, 1, 2, 3, 100)
    (row,) = table(*times[:3], *(each | {"validation": NEVER} for each in times[3:])).frame.itertuples()
    assert math.isnan(row.launch_to_target_olympic_s)
    assert row.launch_to_target_s == pytest.approx(13 / 3 + 1.75)
    assert row.remark == "2 did not reach the target"


@pytest.mark.slow
def test_too_few_repeats_are_marked(table):
    found = table(*launched(1, 2, 3), {"status": "failed"})
    (row,) = found.frame.itertuples()
    assert (row.repeats_reached, row.repeats_failed) == (3, 1)
    assert row.remark == f"too few repeats (3 of {LEAST_REPEATS})"
    assert math.isnan(row.launch_to_target_olympic_s)
    assert "too few repeats" in found.markdown()


@pytest.mark.slow
def test_a_resumed_repeat_is_counted_and_has_no_time(table):
    (row,) = table(*launched(1, 2, 3, 4, 5), {"resumed": 1}).frame.itertuples()
    assert (row.repeats_reached, row.repeats_resumed) == (6, 1)
    assert row.launch_to_target_olympic_s == pytest.approx(3 + 1.75)
    assert row.remark is None


@pytest.mark.slow
def test_measured_and_modelled_energy_have_no_mean(table, tmp_path):
    table(*launched(1, 2, 3, 4, 5))
    runs = read_runs(tmp_path / "runs.csv").assign(load_to_target_j=[10.0, 20.0, 30.0, 40.0, 80.0])
    alike, mixed = (runs.assign(power_source=["modelled", *[source] * 4]) for source in ("modelled", "measured"))
    (row,) = TABLES["time_to_quality"].make(alike, NO_LOADING).frame.itertuples()
    assert (row.load_to_target_j, row.load_to_target_olympic_j) == (36, 30)
    found = TABLES["time_to_quality"].make(mixed, NO_LOADING)
    assert found.frame[["load_to_target_j", "load_to_target_olympic_j"]].isna().all(axis=None)
    assert found.frame.launch_to_target_olympic_s.notna().all()


@pytest.mark.slow
def test_runs_csv_of_before_targets_gives_an_empty_table(table, tmp_path):
    table(*launched(1))
    old = pd.read_csv(tmp_path / "runs.csv")
    old = old.drop(columns=[name for name in old if "target" in name or "flop" in name])
    old.to_csv(tmp_path / "old.csv", index=False)
    found = TABLES["time_to_quality"].make(read_runs(tmp_path / "old.csv"), NO_LOADING)
    assert found.frame.empty
    assert found.markdown()
    assert not TABLES["scaling"].make(read_runs(tmp_path / "old.csv"), NO_LOADING).frame.empty


def study(**datasets):
    content = copy.deepcopy(STUDY)
    small = content["datasets"]["nt3"]
    content["datasets"] = {name: {**small, "benchmark": "nt3", **changes} for name, changes in datasets.items()}
    content["runs"] = [
        {"benchmark": "nt3", "dataset": name, "scaling": "strong", "epochs": 4, "gpus": 1 + index, "loader": "npy"}
        for index, name in enumerate(datasets)
    ]
    return content


OWN = {"quantity": "validation_loss", "at_most": 0.5, "why": "a test"}


def test_a_study_s_target_replaces_the_benchmark_s_and_leaves_the_run_as_it_is():
    (usual,) = expansion.expand_study("s", study(nt3={}), "s.yaml").runs
    (own,) = expansion.expand_study("s", study(nt3={"target_quality": OWN}), "s.yaml").runs
    assert str(usual.dataset.target) == "validation_accuracy >= 0.95"
    assert str(own.dataset.target) == "validation_loss <= 0.5"
    assert own.directory == usual.directory
    assert define(own).fingerprint == define(usual).fingerprint
    assert define(own).as_dict() == define(usual).as_dict()
