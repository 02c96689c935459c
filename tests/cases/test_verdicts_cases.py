"""Verdicts: failures that are left out of them, and unlike things that they compare."""

import copy
import itertools
import math
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import run_files
import test_target_quality as quality
from examples import STUDY, expand
from test_check import POINT, RUNTIME, Machine, study_with
from test_findings import GRID, declared, rows, study_of
from test_tuning import RUN

from study.commands.results import compare
from study.compare import estimates, reference_check, tuner
from study.core.errors import StudyError
from study.core.files import write_json
from study.experiment import expansion
from study.records.record import make_record
from study.records.tidy import format_arms, loading_frame, runs_frame
from study.report.findings import outcome
from study.report.tables import TABLES
from study.report.tables.tuning import describe_answer

TEN = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02, 9.98, 10.03, 9.97, 10.0]
FASTER = {"ours": "chunked"}
S = 10**9


@pytest.fixture
def local(tmp_path, monkeypatch, capsys):
    """A machine on which references are accepted and checked; see `test_check.Machine`."""

    def make(run, **facts):
        return run_files.make_run(tmp_path, run, **facts)

    return Machine(make, tmp_path, monkeypatch, capsys)


def replaced(local, study, runtimes, failing=0, **facts):
    """Replace all runs; the first ones failed."""
    local.runs(study, runtimes, **facts)
    for run, seconds in zip(study.runs[:failing], runtimes, strict=False):
        shutil.rmtree(local.results / "local" / "runs" / run.directory)
        folder = local.make_run(run, status="failed", runtime=seconds, started=next(local.started))
        write_json(folder / "record.json", make_record(folder))


@pytest.mark.case("failed-runs-in-check", source="ordo-one/benchmark #289", right="exit 1; not accepted")
@pytest.mark.parametrize("failing", [7, 10])
def test_runs_that_fail_now_fail_the_check_and_are_not_accepted(local, failing):
    study = study_with(RUNTIME, repeats=10)
    local.runs(study, TEN)
    local.check("--accept")
    before = local.file.read_text()
    replaced(local, study, TEN, failing)
    code, text = local.check()
    assert (code, local.row.verdict, local.row.repeats_failed) == (1, "failures", failing)
    assert f"failed in {failing} of 10 runs (oom)" in text
    code, _, error = local.ended("--accept")
    assert (code, local.file.read_text()) == (2, before)
    assert f"not accepted, failures (failed in {failing} of 10 runs (oom))" in error


@pytest.mark.case("one-new-failure-among-added-repeats", source="our own", right="exit 1")
def test_added_repeats_that_all_fail_are_no_reference_s_own_runs(local):
    local.runs(study_with(RUNTIME), TEN[:4])
    local.check("--accept")
    study = study_with(RUNTIME, repeats=7)
    local.study = study
    for run in study.runs[4:]:
        folder = local.make_run(run, status="failed", started=next(local.started))
        write_json(folder / "record.json", make_record(folder))
    code, _ = local.check()
    assert (code, local.row.verdict) == (1, "failures")


@pytest.mark.case("survivors-to-target", source="mlcommons/training_policies #361", right="exit 1, not accepted")
@pytest.mark.parametrize("missed", [5, 8])
def test_runs_that_miss_the_target_fail_the_check_of_its_time(local, missed):
    content = {**copy.deepcopy(STUDY), "runs": [{**POINT, "repeats": 8}],
               "references": [{"quantity": "launch_to_target_s", "high": 0.1}]}  # fmt: skip
    content["datasets"]["nt3"]["target_quality"] = {
        "quantity": "validation_accuracy",
        "at_least": 0.95,
        "why": "a test",
    }
    study = expansion.expand_study("test", content, "test.yaml")
    facts = {"times": [0.75] * 4, "more_edges": tuple(quality.TRAIN)}
    local.started = itertools.repeat(quality.STARTED)
    local.runs(study, [20.0] * 8, validation=[*quality.LEARNT], **facts)
    local.check("--accept")
    for run in study.runs[:missed]:
        shutil.rmtree(local.results / "local" / "runs" / run.directory)
        folder = local.make_run(run, started=quality.STARTED + 1, validation=quality.NEVER, **facts)
        write_json(folder / "record.json", make_record(folder))
    code, text = local.check()
    assert (code, local.row.verdict) == (1, "failures")
    assert f"missed the target in {missed} of 8 runs" in text
    assert local.ended("--accept")[0] == 2


def to_target(reached, repeats=8):
    """A finding on the time to the target; ``chunked`` takes half as long, and reaches it in some blocks only."""
    study = study_of({**GRID, "repeats": repeats})

    def has(run):
        return run["loader"] != "chunked" or run.repeat in reached

    def seconds(run):
        return (50.0 if run["loader"] == "chunked" else 100.0) + 0.1 * run.repeat if has(run) else None

    runs = rows(study, lambda run: 1.0, launch_to_target_s=seconds, target_reached=has)
    return outcome.judge_finding(declared(quantity={"column": "launch_to_target_s"}), study, runs)


@pytest.mark.case("survivors-to-target-in-a-finding", source="mlcommons/training_policies #361", right="no verdict")
def test_an_arm_that_misses_the_target_is_not_faster():
    found = to_target(reached=(2, 4, 7))
    assert (found.verdict, found.estimate) == ("not_enough_runs", None)
    assert "loader chunked missed the target in 5 of 8 runs" in found.sentence
    assert to_target(reached=range(1, 9)).verdict == "yes"


def with_failures(where, kind="oom", message="no memory", repeats=8):
    """A finding of runtimes: ``chunked`` is shorter by 30 %; runs for which ``where`` holds failed."""
    study = study_of({**GRID, "repeats": repeats})
    runs = rows(study, lambda run: (0.7 if run["loader"] == "chunked" else 1.0) * (1 + 0.001 * run.repeat))
    planned = sorted(study.runs, key=lambda run: run.repeat)
    failed = [bool(where(run)) for run in planned]
    runs = runs.assign(
        status=np.where(failed, "failed", "ok"),
        failure_kind=[kind if each else None for each in failed],
        failure_message=[message if each else None for each in failed],
    )
    return outcome.judge_finding(declared(), study, runs)


@pytest.mark.case("one-crash-in-the-faster-arm", source="our own", right="no verdict: 1 of 8 runs")
def test_failures_of_the_faster_arm_take_its_verdict():
    found = with_failures(lambda run: run["loader"] == "chunked" and run.repeat == 5)
    assert found.verdict == "not_enough_runs"
    assert "loader chunked failed in 1 of 8 runs" in found.sentence


@pytest.mark.case("failures-that-are-not-the-arm-s", source="our own", right="yes")
@pytest.mark.parametrize(
    "failing",
    [
        {"where": lambda run: run["loader"] == "chunked" and run.repeat == 5, "kind": "host_lost"},
        {"where": lambda run: run["loader"] == "chunked" and run.repeat == 5, "kind": "killed",
         "message": "its batch job 7 was lost (no exit status), as an earlier one was"},
        {"where": lambda run: run.repeat == 5},  # both arms of a block
        {"where": lambda run: run["loader"] == "read_csv" and run.repeat == 5},  # the slower one
    ],
)  # fmt: skip
def test_failures_that_do_not_speak_against_an_arm_leave_its_verdict(failing):
    found = with_failures(**failing)
    assert found.verdict == "yes"
    assert "Left out:" in found.sentence


def of_arms(seconds=lambda run: 8.0 if run["loader"] == "chunked" else 10.0, repeats=6, **more):
    study = study_of({**GRID, "repeats": repeats})
    return outcome.judge_finding(
        declared(), study, rows(study, lambda run: seconds(run) * (1 + 0.001 * run.repeat), **more)
    )


def per_arm(one, other):
    return lambda run: one if run["loader"] == "chunked" else other


@pytest.mark.case("mixed-code", source="airspeed-velocity/asv #509, #687", right="no verdict, the difference named")
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"training_code": per_arm("new", "old")}, "versions of the code"),
        ({"packages": per_arm("tensorflow 2.18", "tensorflow 2.15")}, "versions of the libraries"),
        ({"hosts": per_arm("n2", "n1")}, "on different hosts"),
        ({"communication_libraries": per_arm("mpi 4", "mpi 5")}, "communication libraries"),
        ({"steering": per_arm('{"OMP_PROC_BIND": "true"}', "{}")}, "settings of the environment"),
        ({"job_options": per_arm("-q fast", "-q slow")}, "options of batch jobs"),
        ({"data_checksum": per_arm("a", "b")}, "versions of the data"),
        ({"memory_mode": per_arm("flat", "cache")}, "memory modes"),
        ({"system": per_arm("Linux 6.1, table parser compiled", "Linux 6.1, table parser fallback")}, "table parsers"),
        ({"hardware": per_arm("Xeon, 8 cores", "Xeon, 4 cores"), "hosts": per_arm("n1", "n1")}, "numbers of cores"),
    ],
)
def test_arms_that_differ_in_more_than_their_key_have_no_verdict(more, why):
    found = of_arms(**more)
    assert (found.verdict, len(found.left_out)) == ("not_enough_runs", 12)
    assert why in found.left_out[0]["reason"]


@pytest.mark.case("code-changed-between-blocks", source="airspeed-velocity/asv #509", right="yes, and said")
def test_blocks_of_two_versions_are_each_of_one():
    found = of_arms(training_code=lambda run: "old" if run.repeat <= 3 else "new")
    assert found.verdict == "yes"
    assert found.sentence.endswith("Its blocks are of several versions of the code.")


@pytest.mark.case("code-changed-within-a-block", source="our own", right="5 blocks")
def test_a_change_of_code_costs_the_block_in_which_it_fell():
    places = itertools.count()
    found = of_arms(training_code=lambda run: "old" if next(places) < 5 else "new")
    assert (found.verdict, found.blocks, len(found.left_out)) == ("yes", 5, 2)


@pytest.mark.case("arms-take-turns-on-two-nodes", source="our own", right="yes")
def test_hosts_by_turns_are_no_other_arm():
    def host(run):
        return "n1" if (run.repeat % 2) == (run["loader"] == "chunked") else "n2"

    for more in ({}, {"hardware": lambda run: f"CPU of {host(run)}"}):
        found = of_arms(hosts=host, **more)
        assert (found.verdict, found.blocks) == ("yes", 6)
    always = of_arms(hosts=lambda run: "n1 n2" if run["loader"] == "chunked" else "n1")
    assert always.verdict == "yes", "fewer hosts of the same ones"


def numbered():
    """A host for each run, the next one each time."""
    places = itertools.count()
    return lambda run: f"n{next(places)}"


@pytest.mark.case("each-job-on-another-node", source="our own", right="yes; tied arms not enough runs")
def test_nodes_that_no_arm_is_tied_to_are_no_other_arm():
    """As a batch system chooses them: their speeds are scatter between blocks."""
    found = of_arms(hosts=numbered())
    assert (found.verdict, found.blocks) == ("yes", 6)
    others = numbered()
    tied = of_arms(hosts=lambda run: "fast" if run["loader"] == "chunked" else others(run))
    assert (tied.verdict, len(tied.left_out)) == ("not_enough_runs", 12), "one arm always on the same node"
    half = of_arms(hosts=lambda run: "fast" if run["loader"] == "chunked" and run.repeat <= 3 else others(run))
    assert half.verdict == "yes", "in half of its runs"
    two = of_arms(repeats=2, hosts=numbered())
    assert two.left_out, "two blocks cannot tell"


def timed(starts_s, seconds=(75.0, 100.0), **more):
    study = study_of({**GRID, "repeats": len(starts_s) // 2})
    runs = rows(study, lambda run: seconds[run["loader"] != "chunked"] * (1 + 0.0001 * run.repeat))
    clocks = {
        name: [int(each * S) for each in values] for name, values in {"started_wall_ns": starts_s, **more}.items()
    }
    return study, runs.assign(**clocks)


@pytest.mark.case("runs-at-once", source="mlco2/codecarbon #96, #544, #681", right="no verdict: at the same time")
def test_runs_that_were_on_one_host_at_once_are_not_paired():
    study, runs = timed([2000.0 + 0.1 * place for place in range(6)])
    found = outcome.judge_finding(declared(), study, runs)
    assert (found.verdict, found.blocks) == ("not_enough_runs", 0)
    study, runs = timed([2000.0 + 110 * place for place in range(6)])
    assert outcome.judge_finding(declared(), study, runs).verdict == "yes"
    beside = runs.iloc[:1].assign(
        record="runs/another/record.json", started_wall_ns=runs["started_wall_ns"].iloc[2] + S
    )
    found = outcome.judge_finding(declared(), study, pd.concat([runs, beside]))
    assert found.verdict == "not_enough_runs", "also beside a run of another point"
    assert "another run was on its host at the same time" in [each["reason"] for each in found.left_out]


@pytest.mark.case("blocks-that-overlap-on-other-hosts", source="our own", right="unpaired")
def test_blocks_that_overlap_are_unpaired():
    _, runs = timed([2000.0 + 60 * place for place in range(6)], hosts=range(6))
    runs["hosts"] = [f"n{place % 2}" for place in range(6)]
    one, other = (runs[[loader in record for record in runs["record"]]] for loader in ("chunked", "read_csv"))
    found = estimates.estimate_ratio(one.assign(hosts="n1"), other.assign(hosts="n1 n0", runtime_s=70.0), "runtime_s")
    assert found.blocks == 0 or found.pairing == estimates.UNPAIRED


@pytest.mark.case("shared-node-energy", source="mlco2/codecarbon #681, #936", right="empty, with the reason")
def test_the_energy_of_a_node_that_two_runs_share_is_neither_s(make_run_in):
    runs = make_run_in([2000, 2010])
    shared = runs.assign(energy_job_j=30000.0, node_energy_j=30000.0, power_source="measured")
    from study.records.power import drop_shared_power

    found = drop_shared_power(shared)
    assert found[["energy_job_j", "node_energy_j"]].isna().all(axis=None)
    assert "at the same time" in found["power_reason"].iloc[0]
    alone = make_run_in([3000, 3100]).assign(energy_job_j=30000.0, power_source="measured")
    assert drop_shared_power(alone)["energy_job_j"].tolist() == [30000.0] * 2


@pytest.fixture
def make_run_in(tmp_path):
    """The tidy table of two runs of 20 s that began at these times (s)."""

    def build(starts):
        planned = expand(gpus=1, repeats=len(starts))
        for run, start in zip(planned, starts, strict=True):
            run_files.make_recorded(tmp_path / str(starts[0]), run, started=start * S, load=(2.0,))
        return runs_frame(planned, {"nt3": "c0de"}, tmp_path / str(starts[0]) / "local")

    return build


@pytest.mark.case("clock-step-between-blocks", source="green-metrics-tool #1350", right="yes, 25 %")
def test_a_wall_clock_that_is_set_between_blocks_does_not_order_them():
    at = [100.0 * place for place in range(12)]
    set_back = [each - 600 * (place >= 6) for place, each in enumerate(at)]
    study, runs = timed(set_back, started_monotonic_ns=at)
    found = outcome.judge_finding(declared(), study, runs.assign(boot_id="b"))
    assert (found.verdict, round(found.estimate)) == ("yes", 25)
    by_wall = outcome.judge_finding(declared(), study, runs.drop(columns="started_monotonic_ns"))
    assert by_wall.verdict == "not_enough_runs"
    assert "by their clocks" in by_wall.sentence or "at the same time" in by_wall.left_out[0]["reason"]


def copied(tmp_path, monkeypatch, more=0):
    """Results of three runs and a copy of them; with ``more``, further runs were made in the copy."""
    planned = expand(gpus=2, repeats=3 + more)
    numbers = itertools.count(1)
    for run in sorted(planned, key=lambda run: run.repeat):
        run_files.make_recorded(tmp_path, run, runtime=10.0 + run.repeat / 10, started=next(numbers))
    for name, runs in (("old", planned[:3]), ("new", planned)):
        made = tmp_path / name / "local" / "studies" / "one"
        (made / "tables").mkdir(parents=True)
        (made / "tables" / "scaling.csv").write_text("")
        shutil.copytree(tmp_path / "local" / "runs", tmp_path / name / "local" / "runs")
        runs_frame(runs, {"nt3": "c0de"}, tmp_path / name / "local").to_csv(made / "runs.csv", index=False)
        loading_frame([], "c0de", tmp_path / name / "local").to_csv(made / "loading.csv", index=False)
    given = [f"{name}={tmp_path}/{name}/local/studies/one" for name in ("old", "new")]
    monkeypatch.setattr(sys, "argv", ["compare", *given, "--output", str(tmp_path / "both")])
    compare(standalone_mode=False)


@pytest.mark.case("copied-results", source="faster-cpython/tools #72", right="refused: a copy")
@pytest.mark.parametrize("more", [0, 2])
def test_a_copy_is_not_compared_with_itself(tmp_path, monkeypatch, more):
    with pytest.raises(StudyError, match="a copy compared with itself") as refused:
        copied(tmp_path, monkeypatch, more)
    assert "\n" not in str(refused.value)


def tuned(**more):
    """A study with an arm that is 10 % faster in eight blocks."""
    content = copy.deepcopy(STUDY)
    content["runs"] = [{"benchmark": "nt3", "scaling": "weak", "epochs": 4, "gpus": 2, "loader": "read_csv",
                        "repeats": 8, "tuning": {"xla": {"xla": True}}}]  # fmt: skip
    study = expansion.expand_study("test", content, "test.yaml")
    rng = np.random.default_rng(3)
    found = []
    for place, run in enumerate(sorted(study.runs, key=lambda run: run.repeat)):
        arm = run.arms[0].name
        seconds = 0.1 * math.exp(0.005 * rng.standard_normal()) / (1.1 if arm == "xla" else 1)
        found.append({**RUN, **run.parameters, "block": run.repeat, "arms": format_arms(run), "started_wall_ns": place,
                      "record": f"runs/{run.directory}/record.json", "time_per_step_s": seconds,
                      **{name: value(arm, run) for name, value in more.items()}})  # fmt: skip
    runs = pd.DataFrame(found)
    (answer,) = tuner.answer_baselines(study, runs)
    return answer, " | ".join(describe_answer(answer)), TABLES["tuning"].make(runs, pd.DataFrame()).frame.iloc[0]


@pytest.mark.case("tune-mixed-code", source="airspeed-velocity/asv #509", right="not turned, and why")
def test_an_arm_of_other_code_is_not_turned():
    answer, told, row = tuned(training_code=lambda arm, run: arm, packages=lambda arm, run: arm)
    assert answer.verdict == tuner.NOT_ENOUGH
    assert "several versions of the code" in told
    assert pd.isna(row["verdict"]) and "several versions of the code" in row["blocks_unlike"]
    assert tuned()[0].verdict == tuner.TURN


@pytest.mark.case("tune-first-epoch", source="alpa #823", right="not turned: runs take longer")
def test_an_arm_whose_runs_take_longer_is_not_turned():
    answer, told, _ = tuned(runtime_s=lambda arm, run: (90.0 if arm == "xla" else 30.0) + run.repeat / 10)
    assert answer.verdict == tuner.KEEP
    assert "whole runs take" in told and "longer" in told


@pytest.mark.case("tune-one-crash-in-the-table", source="our own", right="no verdict")
def test_a_faster_arm_that_fails_more_often_has_no_verdict_in_the_table():
    _, _, row = tuned(status=lambda arm, run: "failed" if arm == "xla" and run.repeat == 2 else "ok",
                      failure_kind=lambda arm, run: "oom")  # fmt: skip
    assert pd.isna(row["verdict"]) and row["repeats_failed"] == 1
    assert tuned()[2]["verdict"] == "faster"


@pytest.mark.case("lowest-batch-size-among-survivors", source="our own", right="no verdict")
def test_a_batch_size_that_fails_more_often_is_not_the_lowest(make_run_in):
    first = make_run_in([1]).iloc[0].to_dict()
    runs = pd.DataFrame(
        [
            {**first, "batch_size": size, "block": block, "repeat": block, "started_wall_ns": 10 * block + size // 20,
             "runtime_s": size + block / 10, "record": f"{size}/{block}/record.json",
             "status": "failed" if (size, block) == (20, 4) else "ok"}
            for block in range(1, 5) for size in (20, 40)
        ]
    )  # fmt: skip
    found = TABLES["batch_size_optimum"].make(runs, pd.DataFrame()).frame
    assert found["runtime_verdict"].isna().all()
    found = TABLES["batch_size_optimum"].make(runs.assign(status="ok"), pd.DataFrame()).frame
    assert found["runtime_verdict"].tolist() == ["lowest", "higher"]


@pytest.mark.case("warm-cache-for-the-second-arm", source="our own", right="5 blocks: the first one is left out")
def test_an_arm_that_reads_what_the_other_has_warmed_is_left_out():
    """The very first run reads from storage and takes twice as long; all later ones find the page cache warm."""

    def is_cold(run):
        return run.repeat == 1 and run["loader"] == "read_csv"

    read = {"shared_read_mb": lambda run: 600.0, "storage_read_mb": lambda run: 600.0 if is_cold(run) else 0.0}
    found = of_arms(lambda run: 20.0 if is_cold(run) else 10.0, **read)
    assert (found.blocks, found.estimate) == (5, pytest.approx(0))
    assert "page cache" in found.left_out[0]["reason"]
    all_cold = of_arms(lambda run: 10.0, **read | {"storage_read_mb": lambda run: 600.0})
    assert all_cold.blocks == 6, "where every run reads from storage, they are alike"


@pytest.mark.case("most-blocks-left-out", source="our own", right="no verdict: 3 of 8 blocks")
def test_an_estimate_of_fewer_than_half_of_the_blocks_has_no_verdict():
    """Five of eight blocks lacked cores in one arm; the other three are no fair sample of all."""

    def found(crowded):
        study = study_of({**GRID, "repeats": 8})
        runs = rows(study, lambda run: (8.0 if run["loader"] == "chunked" else 10.0) * (1 + 0.001 * run.repeat))
        planned = sorted(study.runs, key=lambda run: run.repeat)
        lacks = [run.repeat <= crowded and run["loader"] == "chunked" for run in planned]
        return outcome.judge_finding(declared(), study, runs.assign(oversubscribed=lacks))

    assert (found(5).verdict, found(5).estimate) == ("not_enough_runs", None)
    assert "only 3 of 8 blocks can be compared" in found(5).sentence
    assert found(4).verdict == "yes"


@pytest.mark.case("values-missing-in-check", source="our own", right="no verdict: 6 of 10 have no value")
def test_a_check_of_the_few_runs_that_have_a_value_has_no_verdict():
    frame = pd.DataFrame({"point": "p", "status": "ok", "energy_job_j": [None] * 6 + [1.0, 1.1, 1.05, 1.02],
                          "record": [f"runs/{place}" for place in range(10)], "started_wall_ns": range(10),
                          "code": "c", "code_is_current": True, "power_source": "measured"})  # fmt: skip
    series = reference_check._make_series(reference_check.Reference("energy_job_j", "runs", {}, None, 0.02), "p", frame)
    assert (series.problem, series.reason) == (reference_check.NOT_ENOUGH, "6 of 10 finished runs have no value")
    series = reference_check._make_series(
        reference_check.Reference("energy_job_j", "runs", {}, None, 0.02), "p", frame.iloc[2:]
    )
    assert series.problem is None


@pytest.mark.case("claims-of-survivors", source="our own", right="no interval, 3 failed runs told")
def test_a_claim_tells_how_many_runs_failed_and_gives_no_interval_of_survivors():
    from study.report.papers.claim_estimates import answer_claim
    from study.report.papers.declaration import Claim

    def arm(seconds, failed, loader):
        return pd.DataFrame({"block": range(1, 7), "status": ["failed"] * failed + ["ok"] * (6 - failed),
                             "runtime_s": [None] * failed + [seconds * (1 + 0.01 * each) for each in range(6 - failed)],
                             "gpus": 1, "session": "s", "failure_kind": "oom", "started_wall_ns": range(6),
                             "machine": "m", "loader": loader,
                             "record": [f"{seconds}/{each}" for each in range(6)]})  # fmt: skip

    def answer(form, *arms, **sides):
        (found,) = answer_claim(Claim("q", "1", form=form, measure="runtime_s", **sides), pd.concat(arms))
        return found.estimate, sum(int(side["status"].ne("ok").sum()) for side in found.arms.sides)

    sides = {"one": {"loader": "a"}, "other": {"loader": "b"}}
    estimate, failed = answer("change_pct", arm(8.0, 3, "a"), arm(10.0, 0, "b"), **sides)
    assert (failed, estimate.blocks) == (3, 3) and math.isnan(estimate.low)
    estimate, failed = answer("change_pct", arm(8.0, 0, "a"), arm(10.0, 3, "b"), **sides)
    assert failed == 3 and estimate.high < 0, "failures of the slower one do not speak for it"
    estimate, failed = answer("value", arm(8.0, 2, "a"))
    assert (failed, estimate.blocks) == (2, 4)


@pytest.mark.case("reference-of-another-machine", source="our own", right="no verdict: other hardware")
def test_a_reference_of_other_hardware_is_not_compared():
    """Half of the cores were taken away since; a calibration would take that out."""

    def series(values, **more):
        return reference_check.Series("runtime_s", "p", "s", values, None, 0.02, code="c", records="r", **more)

    old = series([10.0, 10.1, 10.2], hardware="Xeon, 8 cores")
    accepted = {each.key: each for each in reference_check.accept_series([old], {})}
    found = reference_check.compare_series([series([20.0, 20.1, 20.2], hardware="Xeon, 4 cores")], accepted)
    assert found["verdict"].tolist() == [reference_check.OTHER_HARDWARE]
    for same in ("Xeon, 8 cores", None):
        found = reference_check.compare_series([series([20.0, 20.1, 20.2], hardware=same)], accepted)
        assert found["verdict"].tolist() == [reference_check.REGRESSION]
