"""Blocks that are run again since a run of them was disturbed: which, when, and which attempt counts."""

import random
import shutil
from pathlib import Path

import pytest
from examples import STUDY

from study.core import fields
from study.core.files import write_sealed
from study.experiment import earlier_attempts, expansion
from study.instruments import disturbance
from study.machines import machine
from study.records import attempts
from study.records.record import make_record
from study.workflow import passes

NEVER, ONCE = {"repeat_disturbed": 0}, {"repeat_disturbed": 1}
QUIET, BUSY = 0.01, 0.6  # shares of the cores that others used


def used_by(others):
    nothing = {each.name: None for each in fields.find_section("background").fields if not each.derived}
    return {**nothing, "stood_still_s": 0.0, "others_cpu_share": others, "busiest_others": "burner 0.60"}


@pytest.fixture
def runs():
    grid = {"benchmark": "nt3", "scaling": "weak", "gpus": [1, 2], "loader": "npy", "epochs": 1, "repeats": 2}
    return expansion.expand_study("test", {**STUDY, "runs": [grid]}, "test.yaml").runs


@pytest.fixture
def ended(make_run):
    """A function that makes an ended run with its record. others: the share of the cores that others used."""

    def make(run, others, **given):
        folder = make_run(run, **given)
        record = make_record(folder)
        record["background"] = None if others is None else used_by(others)
        write_sealed(folder / "record.json", record)

    return make


def block(found):
    return [(each.block, {run.gpus for run in each.runs}, each.attempt, each.most) for each in found]


def again(runs, results, machine=ONCE):
    """Do what Snakemake's start does with the blocks that are due; returns their runs."""
    moved = [run for each in attempts.find_due_blocks(runs, results, machine) for run in each.runs]
    attempts.set_aside_attempts(moved, results)
    return moved


def test_a_block_with_a_disturbed_run_is_run_again_whole(runs, ended, tmp_path):
    for run in runs:
        ended(run, BUSY if (run.repeat, run.gpus) == (2, 1) else QUIET)
    found = attempts.find_due_blocks(runs, tmp_path / "local", ONCE)
    assert block(found) == [(2, {1, 2}, 2, 2)]
    (line,) = attempts.describe_blocks(found)
    assert line.startswith("block 2 is run again, attempt 2 of at most 2 (2 runs), as 1 run of it was disturbed: nt3/")
    assert "other processes used 60.0 % of its cores (burner 0.60)" in line
    assert attempts.find_due_blocks(runs, tmp_path / "local", NEVER) == []
    assert attempts.find_due_blocks(runs, tmp_path / "local", ONCE | {"disturbance": {"others_cpu_share": 0.7}}) == []


def test_a_failed_run_is_a_result(runs, ended, tmp_path):
    for run in runs:
        failed = run.gpus == 1
        ended(run, BUSY if failed or run.repeat == 2 else QUIET, status="failed" if failed else "ok")
    assert block(attempts.find_due_blocks(runs, tmp_path / "local", ONCE)) == [(2, {2}, 2, 2)]


def test_nothing_is_known_of_a_block_before_its_end_and_of_a_run_without_a_sampler(runs, ended, tmp_path):
    ended(runs[0], BUSY)
    assert runs[0].repeat == 1 and attempts.find_due_blocks(runs, tmp_path / "local", ONCE) == []
    for run in runs[1:]:
        ended(run, None)
    assert block(attempts.find_due_blocks(runs, tmp_path / "local", ONCE)) == [(1, {1, 2}, 2, 2)]
    Path(tmp_path, "local", "runs", runs[0].directory, "record.json").write_text("damaged")
    assert attempts.find_due_blocks(runs, tmp_path / "local", ONCE) == [], "what reads the record refuses it"


def test_attempts_end_and_of_equal_ones_the_first_counts(runs, ended, tmp_path):
    results, runs = tmp_path / "local", [run for run in runs if run.repeat == 1]
    for run in runs:
        ended(run, BUSY, runtime=1.0)
    assert earlier_attempts.count_other_attempts(runs, results) == {} and len(again(runs, results)) == 2
    assert attempts.find_due_blocks(runs, results, ONCE) == [], "it is to do, not due"
    assert earlier_attempts.count_other_attempts(runs, results) == dict.fromkeys((run.directory for run in runs), 1)
    for run in runs:
        ended(run, BUSY, runtime=9.0)
    assert attempts.find_due_blocks(runs, results, ONCE) == []
    (line,) = attempts.describe_still_disturbed(runs, results, ONCE)
    assert line.startswith("2 runs of 2 are disturbed in each of 2 attempts, as many as repeat_disturbed allows")
    assert attempts.describe_still_disturbed(runs, results, {"repeat_disturbed": 2}) == [], (
        "there is another one to come"
    )
    assert attempts.describe_still_disturbed(runs, results, NEVER) == [], "none may be run again"
    assert block(attempts.find_due_blocks(runs, results, {"repeat_disturbed": 2})) == [(1, {1, 2}, 3, 3)]
    for _ in range(2):  # the second time nothing changes
        attempts.keep_least_disturbed(runs, results)
        found = attempts.tabulate_attempts(runs, results, None)
        assert found["counts"].tolist() == [False, True] * 2 and found["disturbed"].all()
        assert found["runtime_s"].tolist() == [9.0, 1.0] * 2, "of equal ones the earlier, whatever its time"
        assert found["record"].str.startswith("attempts/2/runs/").tolist() == [True, False] * 2
    assert block(attempts.find_due_blocks(runs, results, {"repeat_disturbed": 2})) == [(1, {1, 2}, 3, 3)]
    assert attempts.find_due_blocks(runs, results, ONCE) == []
    found.to_csv(tmp_path / attempts.FILE, index=False)
    (told,) = attempts.describe_attempts(tmp_path)
    assert (
        told.startswith("Block 1 was run again (2 runs), since it was disturbed: attempt 1 of weak") and "60.0" in told
    )
    assert told.endswith("Attempt 1 counts, the least disturbed one.")


@pytest.mark.parametrize(
    ("of_attempts", "counts"),
    [
        ([(0.13, 0.0), (0.72, 0.0)], 1), ([(0.13, 0.0), (0.12, 0.0)], 2), ([(0.13, 0.0), (0.0, 0.14)], 1),
        ([(0.6, 0.6), (0.61, 0.0)], 1), ([(0.6, 0.0), (0.5, 0.55)], 2), ([(0.6, 0.0), (0.7, 0.0), (0.5, 0.0)], 3),
        ([(0.6, 0.0), (0.5, 0.0), (0.55, 0.0)], 2), ([(0.6, 0.0), (0.6, 0.0), (0.6, 0.0)], 1),
    ],
)  # fmt: skip
def test_the_least_disturbed_attempt_counts_by_its_worst_run(runs, ended, tmp_path, of_attempts, counts):
    results, runs = tmp_path / "local", [run for run in runs if run.repeat == 1]
    machine = {"repeat_disturbed": len(of_attempts) - 1}
    for number, shares in enumerate(of_attempts, 1):
        for run, others in zip(runs, shares, strict=True):
            ended(run, others, runtime=float(number))
        attempts.keep_least_disturbed(runs, results)
        if number < len(of_attempts):
            assert {each.attempt for each in attempts.find_due_blocks(runs, results, machine)} == {number + 1}
            again(runs, results, machine)
    found = attempts.tabulate_attempts(runs, results, None)
    assert found.loc[found["counts"], "runtime_s"].tolist() == [counts] * 2
    assert sorted(found["runtime_s"]) == sorted([*range(1, len(of_attempts) + 1)] * 2), "none is lost"
    assert attempts.find_due_blocks(runs, results, machine) == []


def test_an_attempt_that_not_all_runs_have_does_not_count(runs, ended, tmp_path):
    """One of the block's runs was lost meanwhile: what is there stays."""
    results, runs = tmp_path / "local", [run for run in runs if run.repeat == 1]
    for run in runs:
        ended(run, QUIET if run.gpus == 1 else BUSY)
    again(runs, results)
    for run in runs:
        ended(run, 0.7)
    (Path(results, "attempts", "1", "runs", runs[0].directory, "record.json")).unlink()
    (Path(results, "attempts", "1", "runs", runs[0].directory, "outcome.json")).unlink(missing_ok=True)
    attempts.keep_least_disturbed(runs, results)
    assert attempts.tabulate_attempts(runs, results, None)["counts"].sum() == 2
    assert {path.parts[-4] for path in Path(results, "attempts").glob("*/runs/*/*/*")} != set()
    shutil.rmtree(Path(results, "attempts", "1", "runs", runs[0].directory))
    assert block(attempts.find_due_blocks(runs, results, {"repeat_disturbed": 3})) == [(1, {1, 2}, 3, 4)], (
        "after the most attempts"
    )


def test_the_score_knows_no_time_of_the_run():
    for given, score in [
        (None, 0), ({}, 0), ({"others_cpu_share": 0.3, "cpu_steal_share": 0.1}, 0.4), ({"stood_still_s": 5.0}, 0.5),
        ({"swapped_mb": 1000.0, "gpu_shared_share": None}, 0.1), ({"runtime_s": 1e9, "major_faults": 1e9}, 0),
    ]:  # fmt: skip
        assert disturbance.score_disturbance(given) == pytest.approx(score)


def test_the_choice_ignores_times_and_results(runs, ended, tmp_path):
    """Property: whatever is measured, the same blocks are run again, for any pattern of disturbance."""
    chosen = random.Random(5)
    for run in runs:
        ended(run, QUIET)
    for _ in range(40):
        others = {run.directory: chosen.choice([QUIET, BUSY]) for run in runs}
        found = []
        for _ in range(2):
            for run in runs:
                path = tmp_path / "local" / "runs" / run.directory / "record.json"
                record = make_record(path.parent) | {"runtime_s": chosen.expovariate(0.01)}
                record["training"]["time_per_epoch_s"] = chosen.expovariate(0.1)
                record["quality"]["loss"] = chosen.expovariate(1)
                record["background"] = used_by(others[run.directory])
                write_sealed(path, record)
            found.append(block(attempts.find_due_blocks(runs, tmp_path / "local", ONCE)))
        disturbed = {run.repeat for run in runs if others[run.directory] == BUSY}
        assert found[0] == found[1] == [(each, {1, 2}, 2, 2) for each in sorted(disturbed)]


@pytest.mark.parametrize(
    ("name", "more", "times"),
    [("local", {}, 1), ("local_processes", {}, 1), ("lab", {}, 1), ("local", {"repeat_disturbed": 0}, 0),
     ("local", {"scheduler": "slurm"}, 0), ("perlmutter", {}, 0), ("summit", {}, 0), ("polaris", {}, 0),
     ("polaris", {"repeat_disturbed": 2}, 2)],
)  # fmt: skip
def test_blocks_are_run_again_by_default_where_there_is_no_batch_system(name, more, times):
    assert attempts.count_further_attempts(machine.load(name) | more) == times


def test_snakemake_is_started_again_as_often_as_it_asks_for(monkeypatch):
    assert not passes.request_another_pass(), "nobody would start it"
    codes = []

    def start(line):
        codes.append(0)
        if len(codes) < 3:
            assert passes.request_another_pass()
        return 0

    assert passes.run_passes(["snakemake"], start) == passes.PassesResult(0) and len(codes) == 3
    assert passes.run_passes(["snakemake"], lambda line: passes.request_another_pass() + 4).code == 5, (
        "not after an error"
    )
    assert passes.run_passes(
        ["snakemake"], lambda line: passes.request_another_pass() - 1, most_passes=1
    ) == passes.PassesResult(0)


def test_who_starts_snakemake_learns_what_it_planned():
    passes.note_planned(machine="nobody asks")

    def start(line):
        passes.note_planned(machine=line[0])
        return 0

    assert passes.run_passes(["summit"], start) == passes.PassesResult(0, {"machine": "summit"})
