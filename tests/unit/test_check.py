"""Performance references: verdicts on runs with known times, accepted values, and what is refused."""

import dataclasses
import itertools
import sys

import numpy as np
import pandas as pd
import pytest
import yaml
from examples import STUDY

from study.commands.analysis import check
from study.compare import reference_check as checks
from study.compare import references
from study.compare.estimates import Estimate
from study.core import code_version, configuration, validation
from study.core.errors import StudyError
from study.core.files import write_json
from study.experiment import expansion, schemas
from study.experiment.study import Reference
from study.records.record import make_record

POINT = {"benchmark": "nt3", "scaling": "strong", "epochs": 4, "gpus": 1, "loader": "read_csv"}
STEADY = [10.0, 10.1, 9.9, 10.05]


def study_with(*declared, repeats=4):
    content = {**STUDY, "runs": [{**POINT, "repeats": repeats}], "references": list(declared)}
    validation.validate(content, schemas.build_study_schema(), "test.yaml")
    return expansion.expand_study("test", content, "test.yaml")


RUNTIME = {"quantity": "runtime_s", "high": 0.05}


class Machine:
    """A machine with runs of known times, on which references are accepted and checked."""

    def __init__(self, make_run, folder, monkeypatch, capsys):
        self.make_run, self.results, self.capsys, self.patch = make_run, folder, capsys, monkeypatch
        self.study, self.started = None, itertools.count(1)
        monkeypatch.setattr(configuration, "find_own_folder", lambda: folder / "config")
        monkeypatch.setattr(expansion, "load_study", lambda name, on: self.study)
        monkeypatch.setattr(code_version, "digest_training_code", lambda *names, framework: "c0de")
        monkeypatch.setattr(code_version, "digest_loader_and_sensors", lambda loader, sensors: "c0de")

    @property
    def file(self):
        return references.build_path("local", "test")

    def runs(self, study, runtimes, **made):
        """Replace all runs by ones that took so long."""
        self.study = study
        for run, seconds in zip(study.runs, runtimes, strict=False):
            folder = self.results / "local" / "runs" / run.directory
            for path in folder.glob("*") if folder.exists() else ():
                path.unlink()
            if folder.exists():
                folder.rmdir()
            folder = self.make_run(run, runtime=seconds, load=(2.0,), started=next(self.started), **made)
            write_json(folder / "record.json", make_record(folder))

    def check(self, *options):
        """(exit code, what was printed). Mistakes are raised."""
        with check.make_context("check", self.line(*options)) as context:
            code = int(check.callback(**context.params))
        return code, self.capsys.readouterr().out

    def ended(self, *options):
        """(exit code, what was printed, error messages) of the script."""
        self.patch.setattr(sys, "argv", ["check", *self.line(*options)])
        code = 0
        try:
            check.start()
        except SystemExit as end:
            code = end.code
        return code, *self.capsys.readouterr()

    def line(self, *options):
        return ["--study", "test", "--machine", "local", "--results-dir", str(self.results),
                "--output", str(self.results / "table"), *options]  # fmt: skip

    @property
    def row(self):
        return pd.read_csv(self.results / "table/performance_check.csv").iloc[0]


@pytest.fixture
def local(make_run, tmp_path, monkeypatch, capsys):
    return Machine(make_run, tmp_path, monkeypatch, capsys)


@pytest.mark.slow
def test_accepted_then_unchanged_then_slower(local):
    study = study_with(RUNTIME)
    local.runs(study, STEADY)
    assert local.check()[0] == 0
    assert local.row.verdict == "no reference"
    assert local.check("--accept") == (0, f"accepted 1 of 1 references in {local.file}\n")
    (entry,) = yaml.safe_load(local.file.read_text())["references"]
    assert entry["value"] == pytest.approx(10.01, abs=0.01)
    assert (entry["unit"], entry["repeats"]) == ("s", 4)
    assert local.check()[0] == 0
    assert local.row.verdict == "the reference's own runs"

    local.runs(study, [10.02, 9.95, 10.1, 9.97])
    code, text = local.check()
    assert (code, local.row.verdict) == (0, "pass")
    assert text.endswith("study test on local: 1 pass\n")
    assert local.row.ratio_low < 1 < local.row.ratio_high < 1.05

    local.runs(study, [seconds * 1.1 for seconds in STEADY])
    code, text = local.check()
    assert (code, local.row.verdict) == (1, "regression")
    assert local.row.ratio == pytest.approx(1.1, rel=1e-4)
    assert local.row.ratio_low > 1.05
    assert local.check("--only-report")[0] == 0


def add(local, study, runtimes):
    """Add repeats to those that are there."""
    local.study = study
    for run, seconds in zip(study.runs[-len(runtimes) :], runtimes, strict=True):
        folder = local.make_run(run, runtime=seconds, load=(2.0,))
        write_json(folder / "record.json", make_record(folder))


@pytest.mark.slow
def test_further_repeats_are_compared_without_the_reference_s_own(local):
    """Both together would be half as slow as the new ones are."""
    local.runs(study_with(RUNTIME), STEADY)
    local.check("--accept")
    add(local, study_with(RUNTIME, repeats=6), [11.2, 11.3])
    assert local.check()[0] == 0
    assert (local.row.verdict, local.row.repeats) == ("not enough repeats", 2)
    assert local.row.reason == "the reference's own runs are left out"
    add(local, study_with(RUNTIME, repeats=8), [11.15, 11.25])
    assert local.check()[0] == 1
    assert (local.row.verdict, local.row.repeats) == ("regression", 4)
    local.check("--accept")
    (entry,) = yaml.safe_load(local.file.read_text())["references"]
    assert (entry["repeats"], len(entry["runs"])) == (8, 8), "all are accepted"
    local.study = study_with(RUNTIME)
    local.check()
    assert local.row.verdict == "the reference's own runs", "also if they are fewer"


@pytest.mark.slow
def test_runs_with_several_versions_of_the_libraries_are_no_repeats(local, monkeypatch):
    local.runs(study_with(RUNTIME), STEADY)
    frames = checks._read_runs

    def mixed(*arguments):
        frame = frames(*arguments)
        return frame.assign(packages=["tensorflow 2.15"] * 2 + ["tensorflow 2.18"] * 2)

    monkeypatch.setattr(checks, "_read_runs", mixed)
    local.check()
    assert local.row.verdict == "runs with several versions of the libraries"


def test_noisy_repeats_are_uncertain_and_no_regression(local):
    study = study_with(RUNTIME)
    local.runs(study, STEADY)
    local.check("--accept")
    local.runs(study, [8.0, 14.0, 9.0, 13.0])
    assert local.check()[0] == 0
    assert local.row.verdict == "uncertain"


def test_no_runs_and_no_reference_are_told(local):
    local.study = study_with(RUNTIME)
    assert local.check()[0] == 0
    assert local.row.verdict == "no runs"
    local.study = study_with()
    code, text = local.check()
    assert code == 0
    assert "declares no references" in text


def test_nothing_accepted_leaves_the_file(local):
    local.study = study_with(RUNTIME)
    with pytest.raises(StudyError, match="not written, nothing can be accepted"):
        local.check("--accept")
    assert not local.file.exists()


def repeats(values, first=1, failed=0, quantity="runtime_s"):
    """The table of runs of the point p: so many that failed, then those with values, from this start on."""
    starts = range(first, first + failed + len(values))
    return pd.DataFrame(
        {
            "point": "p",
            "status": ["failed"] * failed + ["ok"] * len(values),
            "failure_kind": "oom",
            "may_fail": True,
            "record": [f"{start}/record.json" for start in starts],
            "started_wall_ns": starts,
            quantity: [np.nan] * failed + values,
            "code": "c0de",
            "code_is_current": True,
        }
    )


@pytest.mark.parametrize(("failed", "verdict"), [(0, "pass"), (2, "pass"), (3, "failures")])
@pytest.mark.parametrize("by_hand", [False, True])
def test_failures_of_the_reference_s_own_runs_are_none_of_the_later_ones(failed, verdict, by_hand):
    """4 of 10 runs failed when they were accepted: later 0 of 4 and 2 of 6 are no more, and 3 of 7 are."""
    reference = Reference("runtime_s", "runs", {}, None, 0.5)
    accepted = repeats([10.0, 10.1, 9.9, 10.05, 9.95, 10.0], 1, failed=4)
    (own,) = checks.accept_series([checks._make_series(reference, "p", accepted)], {})
    assert (own.failed, len(own.failed_runs), len(own.runs)) == (4, 4, 6)
    own = dataclasses.replace(own, failed_runs=None) if by_hand else own
    later = pd.concat([accepted, repeats([10.0, 10.1, 9.9, 10.05], 20, failed=failed)])
    row = checks.compare_series([checks._make_series(reference, "p", later)], {own.key: own}).iloc[0]
    assert (row["repeats"], row["verdict"]) == (4, verdict)
    if not by_hand:
        assert row["repeats_failed"] == failed
        assert (f"failed in {failed} of {4 + failed} runs" in row["reason"]) == bool(failed)
    unchanged = checks.compare_series([checks._make_series(reference, "p", accepted)], {own.key: own}).iloc[0]
    assert unchanged["verdict"] == "the reference's own runs"


def test_a_run_that_was_lost_with_its_host_is_no_failure_of_the_point():
    """None of 4 failed in the reference. Of 5 later ones the host of one was lost: it is told, and 4 are compared."""
    reference = Reference("runtime_s", "runs", {}, None, 0.5)
    (own,) = checks.accept_series([checks._make_series(reference, "p", repeats([10.0, 10.1, 9.9, 10.05], 1))], {})
    later = repeats([10.0, 10.1, 9.9, 10.06], 20, failed=1)
    oom, lost = (
        checks.compare_series([checks._make_series(reference, "p", rows)], {own.key: own}).iloc[0]
        for rows in (later, later.assign(failure_kind="host_lost"))
    )
    assert (oom["verdict"], oom["repeats_failed"]) == ("failures", 1)
    assert (lost["verdict"], lost["repeats"], lost["repeats_failed"]) == ("pass", 4, 1)
    assert lost["reason"] == "1 of 5 runs was lost with a host or a batch job"


def test_failures_among_repeats_that_were_added_later_are_a_share_of_all():
    """2 of 10 failed in the reference. After a first verdict of 4 runs, 4 more end well and 2 fail: 2 of 10, not 6."""
    reference = Reference("runtime_s", "runs", {}, None, 0.5)
    (own,) = checks.accept_series([checks._make_series(reference, "p", repeats([10.0] * 7 + [10.1], 1, failed=2))], {})
    first = [checks._make_series(reference, "p", repeats([10.0, 10.1, 9.9, 10.05], 20))]
    looked = checks.add_first_verdicts(first, checks.compare_series(first, {own.key: own}), {})
    more = pd.concat([repeats([10.0, 10.1, 9.9, 10.05], 20), repeats([10.0, 9.9, 10.1, 10.2], 30, failed=2)])
    found = checks.drop_later_repeats([checks._make_series(reference, "p", more)], looked)
    row = checks.compare_series(found, {own.key: own}).iloc[0]
    assert (row["repeats"], row["verdict"]) == (4, "pass")
    assert row["reason"].startswith("failed in 2 of 10 runs")


def by_hand(local, **entry):
    local.file.parent.mkdir(parents=True, exist_ok=True)
    entry = {"quantity": "runtime_s", "unit": "s", "value": 10.0, **entry}
    entry.setdefault("point", next((run.point for run in local.study.runs), None))
    content = {"references": [entry]}
    local.file.write_text(yaml.safe_dump(content))


def test_a_value_of_one_s_own_is_exact_and_may_have_its_own_limits(local):
    local.runs(study_with(), STEADY)
    by_hand(local, value=5.0, high=0.5)
    assert local.check()[0] == 1
    by_hand(local, value=5.0, high=1.5)
    assert local.check()[0] == 0
    local.check("--accept")
    assert yaml.safe_load(local.file.read_text())["references"][0]["high"] == 1.5, "its limits stay"
    by_hand(local, value=5.0)
    with pytest.raises(StudyError, match="give it low or high, or remove it"):
        local.check()
    by_hand(local, value=5.0, high=1.0, repeats=3, interval=[6.0, 7.0])
    with pytest.raises(StudyError, match="5 is outside its interval"):
        local.check()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"quantity": "runtime"}, "'runtime' is not one of runtime_s.*; did you mean 'runtime_s'"),
        ({"quantity": "host"}, "'host' is not one of runtime_s"),
        ({"quantity": "dataset"}, "'dataset' is not one of runtime_s"),
        ({"quantity": "gpus"}, "'gpus' is not one of runtime_s"),
        ({"quantity": "store_s"}, "'store_s' is not one of runtime_s"),
        ({"unit": "bananas"}, "unit: unknown unit 'bananas' of runtime_s; write s"),
        ({"point": "elsewhere"}, "point: 'elsewhere' is no point of study test .* or remove the entry$"),
        ({"high": None}, "is no reference of study test: give it low or high, or remove it"),
        ({"repeats": 3, "interval": [0.001, 10.0]}, "interval: the value 10 is not the geometric mean of .* is 0.1:"),
        ({"repeats": 3, "interval": [12.0, 13.0]}, "value: 10 is outside its interval"),
    ],
)
def test_an_entry_that_cannot_be_compared_is_refused(local, entry, message):
    local.study = study_with()
    entry = {name: value for name, value in {"high": 0.5, **entry}.items() if value is not None}
    by_hand(local, **entry)
    with pytest.raises(StudyError, match=f"test.yaml: references\\[0\\].*{message}") as refused:
        local.check()
    assert "\n" not in str(refused.value)


def test_an_accepted_value_is_a_sample_of_its_repeats_or_exact():
    entry = references.Accepted("runtime_s", "p", 10.0, "s", repeats=4, interval=[8.0, 12.5])
    assert (entry.sample.n, dataclasses.replace(entry, repeats=None).sample.n) == (4, np.inf)
    references._check_interval(dataclasses.replace(entry, value=10.2), "rounded: 2 % of a half-width of 22 %")
    with pytest.raises(StudyError, match="10.3 is not the geometric mean"):
        references._check_interval(dataclasses.replace(entry, value=10.3), "x")


def test_a_traced_run_is_no_point():
    content = {**STUDY, "runs": [POINT, {**POINT, "gpus": 2, "trace": True}]}
    assert len(checks.list_points(expansion.expand_study("test", content, "test.yaml"), "runs")) == 1


def test_exit_codes_tell_a_regression_from_a_mistake(local):
    local.runs(study_with(), STEADY)
    by_hand(local, value=20.0, high=0.1)
    assert local.ended()[0] == 0
    by_hand(local, value=5.0, high=0.1)
    assert local.ended()[0] == 1
    assert local.ended("--only-report")[0] == 0
    (local.results / "no_folder").write_text("")
    code, _, error = local.ended("--output", str(local.results / "no_folder" / "table"))
    assert (code, "no_folder" in error, error.count("\n")) == (2, True, 1)
    local.file.write_text("references: [")
    code, _, error = local.ended()
    assert (code, "not valid YAML" in error, error.count("\n")) == (2, True, 1)
    assert local.ended("--machine", "nowhere")[0] == 2
    assert local.ended("--no-such-option")[0] == 2
    local.patch.setattr(expansion, "load_study", lambda name, on: 1 / 0)
    assert local.ended()[0] == 2, "a bug is no regression"


def test_runs_without_the_value_are_told_with_the_reason(local):
    study = study_with({"quantity": "energy_job_j", "high": 0.1}, {"quantity": "loss", "high": 0.1})
    local.runs(study, STEADY, loss=0.0)
    assert local.check()[0] == 0
    table = pd.read_csv(local.results / "table/performance_check.csv").set_index("quantity")
    assert table["verdict"].to_dict() == {"energy_job_j": "no value", "loss": "no positive value"}
    assert "no power sensor here" in table.loc["energy_job_j", "reason"]
    text = (local.results / "table/performance_check.md").read_text()
    assert "energy_job_j: " in text and "no power sensor here" in text
    assert "run the study" not in text


def test_measured_and_modelled_power_are_not_averaged(local):
    local.runs(study_with({"quantity": "energy_job_j", "high": 0.1}), STEADY)
    for index, file in enumerate(sorted(local.results.glob("local/runs/**/record.json"))):
        record = yaml.safe_load(file.read_text())
        record["power"] |= {"energy_job_j": 50.0, "source": "modelled" if index else "measured"}
        write_json(file, record)
    local.check()
    assert local.row.verdict == "measured and modelled power"
    assert "modelled in others" in (local.results / "table/performance_check.md").read_text()


def test_a_quantity_that_a_program_does_not_tell_has_its_reason():
    frame = pd.DataFrame({"program_reason": ["its batch size is not known"] * 2})
    assert checks._explain_missing_values("time_per_step_s", frame) == "its batch size is not known"
    assert checks._explain_missing_values("runtime_s", frame) is None


def test_a_fall_is_a_regression_where_low_says_so(local):
    study = study_with({"quantity": "throughput_samples_per_s", "low": -0.1})
    local.runs(study, STEADY)
    point = study.runs[0].point
    unit = {"unit": "samples/s", "value": 400.0}
    local.file.parent.mkdir(parents=True)
    entry = {"quantity": "throughput_samples_per_s", "point": point, **unit}
    local.file.write_text(yaml.safe_dump({"references": [entry]}))
    assert local.check()[0] == 1, "it is 80 samples/s"


def test_limits():
    class Limits:
        low, high = -0.1, 0.05

    for low, high, expected in (
        (0.95, 1.04, "pass"), (0.95, 1.06, "uncertain"), (1.06, 1.2, "regression"), (0.8, 0.89, "regression"),
        (0.85, 1.0, "uncertain"),
    ):  # fmt: skip
        assert checks.judge_ratio(Estimate(1.0, low, high), Limits) == expected


def simulated(change, rows, worlds=1000, noise=0.02):
    """The share of checks of so many points, four repeats each, with an alarm; the limit is 5 %."""
    random, alarms = np.random.default_rng(2019), 0
    for _ in range(worlds):
        series, accepted = [], {}
        for row in range(rows):
            now, then = (np.exp(random.normal(0, noise, 4)) for _ in range(2))
            new = checks.Series("runtime_s", str(row), "s", list(now * change), None, 0.05)
            (own,) = checks.accept_series([checks.Series("runtime_s", str(row), "s", list(then), None, 0.05)], {})
            series.append(new)
            accepted[new.key] = own
        alarms += (checks.compare_series(series, accepted)["verdict"] == checks.REGRESSION).any()
    return alarms / worlds


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated():
    """At the limit itself, the worst case: 5 % of checks, of one point or of five. Unchanged code: hardly ever."""
    assert 0.025 < simulated(1.05, rows=1) < 0.065
    assert simulated(1.05, rows=5, worlds=300) < 0.08
    assert simulated(1.0, rows=1) < 0.005


@pytest.mark.slow
def test_a_tenth_slower_is_found():
    assert simulated(1.1, rows=1, noise=0.015) > 0.95
