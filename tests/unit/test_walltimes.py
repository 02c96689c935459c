"""Walltime per run: from the grid, finished repeats or published times, else the machine's limit."""

import dataclasses
from pathlib import Path

import pytest
from examples import expand

from study import plan
from study.core.files import write_sealed
from study.core.paths import TIMED_OUT, locate_run
from study.experiment import walltimes
from study.experiment.expansion import load_study
from study.machines import machine, queues


def nt3(**point):
    return expand(full_size=True, **{"epochs": 384, "batch_size": 20, **point})


def limit(on, runs, folder="none"):
    return walltimes.Limits(runs, str(folder), machine.load(on)).get_limit(runs[0])


def test_24_nodes_of_theta_have_five_hours_in_a_job_of_256():
    """16 epochs of 695 s, and 902 s around them: 12,022 s; the queue's longest job on 128 nodes has 180 minutes."""
    found = limit("theta", nt3(gpus=24))
    assert (found.known_s, found.limit_s, found.source) == (16 * 695 + 902, 18060, walltimes.PUBLISHED)
    assert found.minutes == 306
    assert queues.choose_nodes(24, found.minutes, machine.load("theta")) == 256


def test_512_nodes_of_summit_ask_for_minutes():
    found = limit("summit", nt3(gpus=3072, scaling="weak", epochs=8))
    known_s = 8 * (33.09 + 32.37) / 2 + 238
    assert found.known_s == pytest.approx(known_s)
    assert found.limit_s == 780 == 60 * -(-1.5 * known_s // 60)
    assert found.minutes == 18


def test_without_a_known_time_it_is_the_machine_s():
    unknown = [("summit", expand()), ("summit", nt3(gpus=384, trace=True)), ("local", nt3()), ("theta", nt3(gpus=6))]
    for on, runs in unknown:
        found = limit(on, runs)
        assert (found.limit_s, found.source) == (machine.load(on)["time_limit_s"], walltimes.MACHINE)


def test_the_grid_goes_over_all():
    (run,) = nt3(gpus=384)
    found = limit("summit", [dataclasses.replace(run, walltime_minutes=40)])
    assert (found.limit_s, found.minutes, found.source) == (2100, 40, walltimes.GRID)


def outcome(folder, run, name="outcome.json", **changes):
    content = {"status": "ok", "failure": None, "exit_code": 0, "runtime_s": 1000.0, "started_wall_ns": 1, "files": {},
               "started_monotonic_ns": None, "boot_id": None, "workers_lost": None}  # fmt: skip
    path = Path(locate_run(folder, run.directory)) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(path, content | changes)


def test_finished_repeats_say_how_long_the_others_take(tmp_path):
    runs = [run for run in load_study("icpp2019").runs if run["benchmark"] == "p1b1" and run.gpus == 3072][:3]
    assert [run.repeat for run in runs] == [1, 2, 3]
    assert limit("summit", runs, tmp_path).limit_s == 2100, "the study's own"
    runs = [dataclasses.replace(run, walltime_minutes=None) for run in runs]
    assert limit("summit", runs, tmp_path).source == walltimes.MACHINE
    outcome(tmp_path, runs[0])
    record = Path(locate_run(tmp_path, runs[0].directory), "record.json")
    record.write_text('{"unproven": "nothing shows that it did its work"}')
    assert limit("summit", runs, tmp_path).source == walltimes.MACHINE
    record.unlink()
    found = limit("summit", runs, tmp_path)
    assert (found.limit_s, found.source, found.is_estimated) == (1500, walltimes.REPEATS, True)
    outcome(tmp_path, runs[1], status="failed", failure={"kind": "timeout"})
    assert limit("summit", runs, tmp_path).limit_s == 6900
    outcome(tmp_path, runs[1])
    outcome(tmp_path, runs[1], TIMED_OUT)
    found = limit("summit", runs, tmp_path)
    assert (found.limit_s, found.is_estimated) == (6900, False), "an attempt reached the estimate"
    limits = walltimes.Limits(runs, str(tmp_path), machine.load("summit"))
    assert limits.get_limit(runs[0]).limit_s == 6900
    outcome(tmp_path, runs[0], runtime_s=6000.0)
    outcome(tmp_path, runs[1], runtime_s=1000.0)
    assert limits.get_limit(runs[0]).limit_s == 6900
    assert limits.get_load_limit() == queues.Timed(1, machine.load("summit")["time_limit_s"])
    assert limits.get_limit(runs[0], again=True).limit_s == 18000, "twice that of the longest repeat"


def han(benchmark, gpus=1, **changes):
    """A run of Figure 8 in the Han paper's study, or one on one GPU."""
    runs = [run for run in load_study("han2019").runs if run["benchmark"] == benchmark and run.gpus == gpus]
    run = next(run for run in runs if run["strategy"] == "horovod" and run["batch_size"] == 128)
    return dataclasses.replace(run, parameters={**run.parameters, **changes})


def test_a_run_whose_operations_take_longer_than_the_machine_s_limit_has_more():
    """Two epochs of 1.2 million images, 3.48 billion multiplications forward and twice as many backward, on a P100."""
    known_s = 2 * 1.2e6 * 6 * 3.48e9 / (0.4 * 10.6e12)
    found = limit("summitdev", [han("resnet50")])
    assert found.known_s == pytest.approx(known_s, rel=0.02)
    assert found.limit_s == 60 * -(-1.5 * found.known_s // 60)
    assert (found.source, found.is_estimated) == (walltimes.OPERATIONS, True)
    assert limit("summitdev", [han("lenet")]).limit_s == 6900, "what it computes takes less, its images may not"
    in_half = {**machine.load("summitdev"), "queue": {"longest_minutes": [{"from_nodes": 1, "minutes": 120}]}}
    for epochs, source in ((0, walltimes.MACHINE), (1, walltimes.OPERATIONS)):
        run = han("resnet50", checkpoint_epochs=epochs)
        found = walltimes.Limits([run], "none", in_half).get_limit(run)
        assert (found.limit_s, found.source) == (6900, source), "with checkpoints another job goes on"


def test_the_plan_warns_of_operations_that_no_job_of_the_queue_is_long_enough_for():
    study, summitdev = load_study("han2019"), machine.load("summitdev")
    assert "are too long" not in plan.summarize(study, summitdev)
    summary = plan.summarize(study, summitdev | {"queue": {"longest_minutes": [{"from_nodes": 1, "minutes": 240}]}})
    (line,) = [line for line in summary.splitlines() if "are too long" in line]
    assert "runs (resnet101 weak scaling on 1 rank) are too long: by counted operations at an assumed 40%" in line
    assert "the queue lets a run of these sizes take 3.9 h at most (queue.longest_minutes): leave these" in line


@pytest.mark.parametrize(("known_s", "limit_s"), [(100, 300), (1000, 1500), (38_000, 42_900), (40_000, None)])
def test_a_queue_s_longest_job_needs_a_tenth_more_than_the_known_time(known_s, limit_s):
    """512 nodes of Summit have jobs of 12 hours, of which 5 minutes are the scheduler's."""
    assert walltimes.estimate_limit_s(known_s, 3072, machine.load("summit")) == limit_s
    without_rules = {**machine.load("summit"), "queue": {}, "time_limit_s": 9000}
    assert walltimes.estimate_limit_s(known_s, 3072, without_rules) == (None if known_s > 9000 else limit_s)


def test_the_plan_names_what_is_assumed_of_a_machine():
    """Summitdev's queue limit and the share of its peak are in no publication; Summit's limits are OLCF's."""
    study, summitdev = load_study("han2019"), machine.load("summitdev")
    summary = plan.summarize(study, summitdev)
    assert "queue.longest_minutes (assumed) lets none be so long" in summary
    assert "counted operations at an assumed 40% of peak_flop_per_s_per_rank for 115 runs" in summary
    too_long = queues.Timed(1, 60.0 * 720)
    assert "queue.longest_minutes (assumed): 1 node may run for 720" in queues.refuse_run(too_long, summitdev)
    assert queues.name_longest(machine.load("summit")) == "queue.longest_minutes"
    assert queues.name_longest(machine.load("tuolumne")) == "time_limit_s", "its file has no queue limit"


def list_without_verdict(study_name, on):
    """The plan's lines on comparisons that can have no verdict on a machine."""
    summary = plan.summarize(load_study(study_name), machine.load(on))
    return [line for line in summary.splitlines() if "no verdict here" in line]


@pytest.mark.parametrize("on", ["polaris", "tuolumne", "frontier", "summit", "perlmutter", "theta_debug"])
def test_the_switches_of_a_cluster_get_verdicts_where_jobs_of_an_hour_are_allowed(on):
    assert list_without_verdict("cluster_switches", on) == []


@pytest.mark.parametrize(("on", "limit"), [("polaris", "queue.longest_minutes"), ("tuolumne", "time_limit_s")])
def test_each_arm_and_finding_without_verdict_is_named_with_the_reason(on, limit):
    finding, arms = sorted(list_without_verdict("gpu_settings", on))
    reason = (
        "no verdict here: the 7 runs of a block on 1 node that are compared need 396 minutes one after the other, more "
        f"than a job may have ({limit} in config/machines/{on}.yaml)"
    )
    assert f"finding gpu_mapped_shortens_run: {reason}" in finding
    assert f"tuning of nt3 on 1 rank, mixed_bfloat16, compiled, batch_40, npy, read_csv, same: {reason}" in arms
