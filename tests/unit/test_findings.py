"""Findings: estimate and verdict of each kind worked out by hand, what enters none, and refused declarations."""

import copy
import logging
import math

import numpy as np
import pandas as pd
import pytest
from examples import STUDY
from snakemake_interface_logger_plugins.common import LogEvent
from tracked import ours

from study.commands.results import findings as show_findings
from study.core import code_version, configuration, validation
from study.core.errors import StudyError
from study.core.files import write_json
from study.experiment import expansion, progress
from study.machines import machine
from study.records.record import make_record
from study.records.table_inputs import gather
from study.report import sources
from study.report.findings import declaration, outcome
from study.report.findings.kinds import ALONG, KINDS, VALUE

LOCAL = machine.load("local")

NAMES = [path.stem for path in ours((configuration.CONFIG / "findings").glob("*.yaml"))]
NT3 = {"benchmark": "nt3", "scaling": "strong", "epochs": 4, "loader": "read_csv"}
FASTER = {
    "title": "chunked is faster",
    "kind": "reduction",
    "quantity": {"column": "runtime_s"},
    "points": {"benchmark": "nt3", "loader": ["chunked", "read_csv"]},
    "sentences": {
        "yes": "Shorter by {number}.",
        "no": "No difference shown: {number}.",
        "opposite": "Longer by {number}.",
        "not_enough_runs": "It cannot be told",
    },
    "table": "scaling",
    "figure": "icpp2019_figure6",
}
GRID = {**NT3, "gpus": 1, "loader": ["read_csv", "chunked"], "repeats": 3}


def declared(**changes):
    content = copy.deepcopy(FASTER) | changes
    validation.validate(content, declaration.make_schema(), "config/findings/test.yaml")
    return declaration._make_finding("test", content)


def study_of(*grids):
    return expansion.expand_study("test", {**copy.deepcopy(STUDY), "runs": list(grids)}, "config/studies/test.yaml")


def rows(study, times, **more):
    """Rows of the tidy table: ``times(run)`` is the runtime; runs start in their order, block after block."""
    ordered = sorted(study.runs, key=lambda run: run.repeat)
    return pd.DataFrame(
        [
            {"record": f"runs/{run.directory}/record.json", "block": run.repeat, "status": "ok", "session": "s",
             "started_wall_ns": place, "oversubscribed": False, "resumed_after_epoch": None, "failure_kind": None,
             "failure_phase": None, "runtime_s": times(run), **{name: value(run) for name, value in more.items()}}
            for place, run in enumerate(ordered)
        ]
    )  # fmt: skip


def shorter_by(share, drift=(1.0, 2.0, 3.0), noise=(0.0, 0.0, 0.0)):
    """Runtimes of a machine that gets slower; with `chunked` shorter by a share and some noise."""
    return lambda run: drift[run.repeat - 1] * (1 - share - noise[run.repeat - 1] if run["loader"] == "chunked" else 1)


def test_a_reduction_is_paired_within_blocks():
    """A drift of the machine by a factor of three does not enter."""
    study = study_of(GRID)
    found = outcome.judge_finding(declared(), study, rows(study, shorter_by(0.25)))
    assert (found.verdict, found.unit, found.blocks, found.runs) == ("yes", "%", 3, 6)
    assert (found.estimate, found.low, found.high) == pytest.approx((25, 25, 25))
    assert found.sentence == "Shorter by 25 % (95 % interval 25 to 25 %, 3 blocks)."
    assert found.quantity == "1 - runtime_s: loader chunked / read_csv"
    assert sorted(found.records) == sorted(f"runs/{run.directory}/record.json" for run in study.runs)
    assert (found.table, found.figure) == ("scaling", None), "only what the study makes"


def test_blocks_that_count_as_fewer_are_told():
    """A gain that grows from block to block: r is 0.5, or 0.92 without its bias, so six blocks are worth the least, 3.

    Blocks in another order, of the same numbers, are worth six.
    """
    study = study_of(GRID | {"repeats": 6})
    growing, mixed = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05), (0.03, 0.0, 0.05, 0.01, 0.04, 0.02)
    alike, unlike = (
        outcome.judge_finding(declared(), study, rows(study, shorter_by(0.25, (1.0,) * 6, noise)))
        for noise in (growing, mixed)
    )
    assert (alike.blocks, alike.blocks_worth) == (6, 3)
    told = "In the interval, its 6 blocks are counted as 3.0, because successive blocks are alike."
    assert alike.sentence.endswith(f"6 blocks). {told}")
    assert (unlike.blocks, unlike.blocks_worth) == (6, 6)
    assert "counted as" not in unlike.sentence


@pytest.mark.parametrize(
    ("share", "noise", "verdict", "words"),
    [
        (0.25, 0.01, "yes", "Shorter by 25 %"),
        (0.01, 0.05, "no", "No difference shown: -1.08 % (95 % interval -12.8 to 12.2 %"),
        (-0.25, 0.01, "opposite", "Longer by 25 %"),
    ],
)
def test_the_verdict_follows_from_the_interval(share, noise, verdict, words):
    """The interval is Student's t with two degrees of freedom, 4.3027, on the logarithms of the three ratios."""
    study = study_of(GRID)
    found = outcome.judge_finding(declared(), study, rows(study, shorter_by(share, noise=(-noise, 0.0, noise))))
    assert (found.verdict, found.blocks) == (verdict, 3)
    assert found.sentence.startswith(words)
    ratios = np.log([1 - share + noise, 1 - share, 1 - share - noise])
    ends = ratios.mean() + np.array([1, -1]) * 4.3027 * ratios.std(ddof=1) / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx(tuple(100 * (1 - np.exp(ends))), abs=0.01)


@pytest.mark.parametrize("kind", ["reduction", "ratio"])
@pytest.mark.parametrize(
    ("share", "noise", "verdict", "words"),
    [
        (0.002, 0.001, "yes", "Shorter by"),
        (0.002, 0.05, "no", "No difference shown"),  # a wide interval proves nothing
        (0.009, 0.001, "no", "No difference shown"),  # 0.65 to 1.15 %
        (0.25, 0.01, "opposite", "Longer by"),
        (-0.25, 0.01, "opposite", "Longer by"),
    ],
)
def test_no_effect_is_claimed_only_by_an_interval_within_the_margin(share, noise, verdict, words, kind):
    study = study_of(GRID)
    runs = rows(study, shorter_by(share, noise=(-noise, 0.0, noise)))
    found = outcome.judge_finding(declared(kind=kind, within=1), study, runs)
    assert found.verdict == verdict
    assert found.sentence.startswith(words)


def test_two_blocks_are_not_enough():
    study = study_of({**GRID, "repeats": 2})
    found = outcome.judge_finding(declared(), study, rows(study, shorter_by(0.25)))
    assert (found.verdict, found.blocks) == ("not_enough_runs", 2)
    assert found.sentence == "It cannot be told (2 of at least 3 complete blocks)."


def test_a_ratio_has_no_percent():
    study = study_of(GRID)
    runs = rows(study, lambda run: run.repeat * (2.0 if run["loader"] == "chunked" else 1.0))
    found = outcome.judge_finding(declared(kind="ratio"), study, runs)
    assert (found.verdict, found.unit, found.estimate) == ("yes", "1", pytest.approx(2))
    assert found.sentence == "Shorter by 2 (95 % interval 2 to 2, 3 blocks)."
    assert outcome.judge_finding(declared(kind="ratio", claim="below"), study, runs).verdict == "opposite"


def test_a_trend_is_the_slope_per_doubling():
    """Shares of 10, 13 and 16 % on 1, 2 and 4 ranks, beside a drift of the machine: three points per doubling."""
    study = study_of({**NT3, "gpus": [1, 2, 4], "repeats": 3})
    finding = declared(
        kind="trend",
        quantity={"column": "load_s", "share_of": "runtime_s"},
        points={"benchmark": "nt3", "gpus": [1, 2, 4]},
    )
    share = {1: 0.10, 2: 0.13, 4: 0.16}
    runs = rows(study, lambda run: 10.0 * run.repeat, load_s=lambda run: 10.0 * run.repeat * share[run.gpus])
    found = outcome.judge_finding(finding, study, runs)
    assert (found.verdict, found.unit) == ("yes", "percentage points per doubling")
    assert (found.estimate, found.low, found.high) == pytest.approx((3, 3, 3))
    assert found.sentence == "Shorter by 3 percentage points (95 % interval 3 to 3 percentage points, 3 blocks)."
    assert found.quantity == "change of load_s / runtime_s per doubling of gpus"
    falling = outcome.judge_finding(finding, study, runs.assign(load_s=runs["runtime_s"] - runs["load_s"]))
    assert (falling.verdict, falling.estimate) == ("opposite", pytest.approx(-3))
    assert falling.sentence.startswith("Longer by 3 percentage points"), "the opposite is told by its size"


FOLLOWS = {
    "kind": "follows",
    "quantity": {"column": "broadcast_s", "minus": "broadcast_fastest_s"},
    "along": {"column": "load_s", "minus": "load_fastest_s"},
    "points": {"benchmark": "nt3", "trace": True, "straggler_loads": [0, 4]},
}


def traced():
    return study_of({**NT3, "gpus": 2, "trace": True, "straggler_loads": [0, 4], "repeats": 3})


def test_one_quantity_follows_another_within_blocks():
    """The wait is 0.9 of the difference in loading, and something that changes from block to block."""
    study = traced()
    late = {0: 0.1, 4: 2.1}
    runs = rows(
        study,
        lambda run: 10.0,
        load_s=lambda run: 1.0 + late[run["straggler_loads"]],
        load_fastest_s=lambda run: 1.0,
        broadcast_s=lambda run: 0.9 * late[run["straggler_loads"]] + 0.5 * run.repeat,
        broadcast_fastest_s=lambda run: 0.2 * run.repeat,
    )
    found = outcome.judge_finding(declared(**FOLLOWS), study, runs)
    assert (found.verdict, found.unit, found.estimate) == ("yes", "s per s", pytest.approx(0.9))
    assert found.sentence == "Shorter by 0.9 s (95 % interval 0.9 to 0.9 s, 3 blocks)."
    assert found.quantity == "change of broadcast_s - broadcast_fastest_s per unit of load_s - load_fastest_s"
    same = outcome.judge_finding(declared(**FOLLOWS), study, runs.assign(load_s=2.0))
    assert (same.verdict, same.estimate) == ("not_enough_runs", None), "the loading never differs"


def test_the_interval_of_a_slope_is_student_s():
    """Differences of 1, 2 and 3 over equal steps: mean 2, standard deviation 1, as in a paired t-test."""
    one = pd.DataFrame({"block": [1, 2, 3], "status": "ok", "session": "s", "started_wall_ns": [0, 2, 4]})
    other = one.assign(started_wall_ns=[1, 3, 5])
    arms = {1: one.assign(**{VALUE: 0.0}), 2: other.assign(**{VALUE: [1.0, 2.0, 3.0]})}
    found = KINDS["trend"].compare(arms)
    half = 4.3027 / math.sqrt(3)  # t(0.975, 2 degrees) x standard deviation / root of 3
    assert (found.value, found.high) == pytest.approx((2, 2 + half), rel=1e-4)
    assert found.low == pytest.approx(2 - half, rel=1e-3)
    late = KINDS["follows"].compare({1: arms[1].assign(**{ALONG: 0.0}), 2: arms[2].assign(**{ALONG: [1.0, 2.0, 3.0]})})
    assert late.numbers == pytest.approx((1, 1, 1))


def changed(runs, position, **values):
    runs = runs.astype(object)
    for name, value in values.items():
        runs.loc[runs.index[position], name] = value
    return runs


def test_failed_and_oversubscribed_runs_enter_no_finding():
    study = study_of({**GRID, "repeats": 8})
    runs = rows(study, lambda run: (0.7 if run["loader"] == "chunked" else 1.0) * (1 + 0.001 * run.repeat))
    runs = changed(runs, 0, status="failed", failure_kind="oom", failure_phase="train", runtime_s=900.0)
    runs = changed(runs, 3, oversubscribed=True, runtime_s=900.0)
    runs = changed(runs, 5, resumed_after_epoch=2, runtime_s=math.nan)
    runs = changed(runs, 7, runtime_s=0.0)
    found = outcome.judge_finding(declared(), study, runs)
    assert (found.verdict, found.blocks, found.runs) == ("yes", 4, 8)
    assert found.estimate == pytest.approx(30)
    reasons = {each["record"]: each["reason"] for each in found.left_out}
    assert [reasons[runs.record[place]] for place in (0, 1, 3, 5, 7)] == [
        "failed: oom in train",
        "no run to compare it with in its block",
        "oversubscribed: fewer cores than its ranks need",
        "resumed from a checkpoint",
        "no positive value",
    ]
    assert len(reasons) == 8 and not set(reasons) & set(found.records)
    told = found.sentence.split("Left out: ")[1].rstrip(".").split(", ")
    assert set(told) == {
        "1 run (failed)",
        "1 run (oversubscribed)",
        "1 run (resumed from a checkpoint)",
        "1 run (no positive value)",
        "4 runs (no run to compare it with in its block)",
    }


@pytest.mark.slow
def test_the_files_of_a_study_are_valid_and_lead_to_its_records(make_run, tmp_path, monkeypatch, capsys):
    """From records on disk to findings.json, findings.md and what `make study` prints."""
    study = study_of({**GRID, "repeats": 3}, {**NT3, "gpus": 2, "loader": "npy"})
    for place, run in enumerate(sorted(study.runs, key=lambda run: run.repeat)):
        folder = make_run(run, runtime=8.0 if run["loader"] == "chunked" else 10.0, started=place,
                          status="failed" if run["loader"] == "npy" else "ok")  # fmt: skip
        write_json(folder / "record.json", make_record(folder))
    monkeypatch.setattr(code_version, "digest_training_code", lambda *names, framework: "c0de")
    monkeypatch.setattr(code_version, "digest_loader_and_sensors", lambda loader, sensors: "c0de")
    monkeypatch.setattr(outcome, "load_finding", lambda name: declared())
    object.__setattr__(study, "findings", ("test",))
    runs, _ = gather(study, tmp_path / "local", lambda run: run["loader"] != "npy", uses_loading=False)
    found = outcome.judge_findings(study, runs)
    content = outcome.to_json(study, "local", found)
    validation.validate(content, "study_findings", "findings.json")
    (one,) = content["findings"]
    assert (one["verdict"], one["estimate"]) == ("yes", pytest.approx(20))
    assert all((tmp_path / "local" / record).is_file() for record in one["records"])
    page = outcome.to_markdown(study, "local", found)
    assert "**Yes.** Shorter by 20 %" in page and one["records"][0] in page
    folder = tmp_path / "local" / "studies" / "test"
    write_json(folder / "findings.json", content)
    everything, _ = gather(study, tmp_path / "local", lambda run: True, uses_loading=False)
    everything.to_csv(folder / "runs.csv", index=False)
    monkeypatch.setattr("sys.argv", ["show", "--study", "test", "--machine", "local", "--results-dir", str(tmp_path)])
    show_findings(standalone_mode=False)
    said = capsys.readouterr().out
    assert "chunked is faster: yes\n    Shorter by 20 % (95 % interval 20 to 20 %, 3 blocks)." in said
    assert "1 run failed" in said and "oom in train: no memory" in said
    assert "findings.md" in said and "report.html" in said
    assert max(len(line.replace(str(tmp_path), "")) for line in said.splitlines()) < 120 and "|" not in said


FAILED, EXPECTED, OK = ({"status": s, "may_fail": m} for s, m in (("failed", ""), ("failed", "True"), ("ok", "")))


@pytest.mark.parametrize("verdict", ["yes", "opposite", "no"])
def test_a_verdict_without_an_interval_is_refused(verdict):
    """By the schema of findings.json, whatever the code does."""
    study = study_of(GRID)
    content = outcome.to_json(study, "local", [outcome.judge_finding(declared(), study, rows(study, shorter_by(0.25)))])
    content["findings"][0] |= {"verdict": verdict, "low": None}
    with pytest.raises(StudyError, match="low: None is not of type 'number'"):
        validation.validate(content, "study_findings", "findings.json")


# Declarations


@pytest.mark.parametrize("name", NAMES)
def test_shipped_findings_are_valid(name):
    declaration.load_finding(name)


def test_the_default_study_has_runs_for_its_findings():
    study = expansion.load_study("laptop", LOCAL)
    for name in study.findings:
        for runs in declaration.select_arms(declaration.load_finding(name), study).values():
            assert len(runs) >= outcome.LEAST_BLOCKS
    assert all(declaration.load_finding(name).table in study.tables for name in study.findings)
    assert all(declaration.load_finding(name).figure in study.figures for name in study.findings)
    assert {run.directory for run in sources.select_finding_sources(study).runs} <= {
        run.directory for run in study.runs
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "ratios"}, "did you mean 'ratio'"),
        ({"quantity": {"column": "runtimes"}}, "quantity.column: 'runtimes' is not one of .*did you mean 'runtime_s'"),
        ({"points": {"loaders": ["a", "b"]}}, "points.loaders: unknown key; did you mean 'loader'"),
        ({"points": {"loader": "chunked"}}, "points: 0 keys have a list; give exactly one"),
        ({"points": {"loader": ["chunked", "npy"], "gpus": [1, 2]}}, "points: 2 keys have a list"),
        ({"points": {"loader": ["chunked"]}}, "points.loader: kind reduction compares two values, these are 1"),
        ({"points": {"gpus": [1, 2, 4]}}, "points.gpus: kind reduction compares two values, these are 3"),
        ({"kind": "trend"}, "points.loader: kind trend needs numbers above 0"),
        ({"kind": "follows"}, "along: kind follows needs the quantity along"),
        ({"within": 0}, "within: 0 is less than or equal to the minimum of 0"),
        ({"within": 1, "claim": "below"}, "claim: within takes its place"),
        ({"kind": "trend", "points": {"gpus": [1, 2]}, "within": 1}, "within: kind trend has no percent"),
        ({"along": {"column": "load_s"}}, "along: kind reduction has no quantity along"),
        (
            {"sentences": {**FASTER["sentences"], "yes": "Yes."}},
            "sentences.yes: 'Yes.': expected a sentence with {number}",
        ),
        ({"sentences": {**FASTER["sentences"], "yes": "{number} {low}"}}, "{low}: only {number} is filled in"),
        ({"sentences": {**FASTER["sentences"], "not_enough_runs": "{number}"}}, "no number without an interval"),
        ({"sentences": {**FASTER["sentences"], "no": "{number"}}, "sentences.no"),
    ],
)
def test_a_broken_declaration_is_refused(changes, words):
    with pytest.raises(StudyError, match=words):
        declared(**changes)


def test_traced_runs_are_no_arm_unless_they_are_meant():
    study = study_of(GRID, {**NT3, "gpus": 2, "trace": True, "straggler_loads": [0, 4]})
    assert [run["trace"] for runs in declaration.select_arms(declared(), study).values() for run in runs] == [False] * 6
    assert [len(runs) for runs in declaration.select_arms(declared(**FOLLOWS), study).values()] == [1, 1]


# Progress


def test_what_is_left_is_told_from_runs_of_the_same_point():
    study = study_of({**NT3, "gpus": [1, 2], "repeats": 3})
    ordered = sorted(study.runs, key=lambda run: run.repeat)
    told = progress.Progress(ordered)
    lines = [told.finish(run, 100.0 * run.gpus) for run in ordered]
    assert lines == [
        "1 of 6 runs, about 8 min left",  # nothing is known of two ranks yet: 5 x 100 s
        "2 of 6 runs, about 10 min left",  # 2 x (100 + 200) s
        "3 of 6 runs, about 8 min left",
        "4 of 6 runs, about 5 min left",
        "5 of 6 runs, about 3 min left",
        "6 of 6 runs",
    ]
    assert progress.Progress(ordered).finish(ordered[0], 4.0).endswith("about 20 s left")


def test_only_finished_runs_are_counted(capsys):
    runs = study_of({**NT3, "gpus": [1, 2]}).runs
    reporter = progress.Reporter({7: runs[0], 8: runs[1]})
    for event, job in ((LogEvent.JOB_STARTED, 7), (LogEvent.JOB_FINISHED, 3), (LogEvent.JOB_FINISHED, 7)):
        reporter.emit(logging.makeLogRecord({"event": event, "job_id": job}))
    assert capsys.readouterr().err.startswith("1 of 2 runs, about ")


def test_the_papers_energy_and_power_are_of_the_whole_run():
    """As in the papers; a finding of the energy without start-up would be of another number."""
    names = [name for name in NAMES if name.startswith(("icpp2019_", "sc18_"))]
    columns = {declaration.load_finding(name).quantity.column for name in names}
    of_power = {each for each in columns if each.endswith(("_j", "_w"))}
    assert of_power == {"whole_run_energy_per_gpu_j", "whole_run_node_power_w"}


def test_what_the_scaled_learning_rate_does_on_theta():
    """sc18, abstract: less runtime and node power. Here 10 % less runtime, and power that differs by chance."""
    study = expansion.load_study("sc18")
    noise = {1: 1.0, 2: 1.01, 3: 0.99}

    def times(run):
        return 100.0 * noise[run.repeat] * (0.9 if run["learning_rate_scaling"] == "linear" else 1)

    def watts(run):
        return 160.0 * (noise[run.repeat] if run["learning_rate_scaling"] == "linear" else 1)

    runs = rows(study, times, whole_run_node_power_w=watts, power_source=lambda run: "measured")
    shorter, less = (
        outcome.judge_finding(declaration.load_finding(f"sc18_scaled_rate_{name}"), study, runs)
        for name in ("shortens_run", "lowers_power")
    )
    assert (shorter.verdict, shorter.estimate, shorter.blocks) == ("yes", pytest.approx(10), 3)
    assert (less.verdict, less.estimate, less.blocks) == ("no", pytest.approx(0, abs=0.01), 3)
