"""Results of two machines in the same tables, and what is refused."""

import sys

import pandas as pd
import pytest
from examples import expand

from study.commands.results import compare
from study.core import code_version, provenance
from study.core.files import read_json
from study.experiment.study import Study
from study.records import versions
from study.records.tidy import loading_frame, runs_frame
from study.report import machine_comparison


@pytest.fixture
def compared(make_recorded, tmp_path, monkeypatch, capsys):
    """Make the results of these machines and compare them: ``compared({"local": 10.0, "local_mpi": 20.0})``."""

    def compare_runs(runtimes, tables=("scaling",), folders=None):
        (run,) = expand(gpus=2)
        for machine, runtime in runtimes.items():
            make_recorded(run, runtime=runtime, machine=machine)
            results = tmp_path / machine
            made = results / "studies" / "one"
            (made / "tables").mkdir(parents=True)
            runs_frame([run], {"nt3": "c0de"}, results).to_csv(made / "runs.csv", index=False)
            loading_frame([], "c0de", results).to_csv(made / "loading.csv", index=False)
            for table in tables:
                (made / "tables" / f"{table}.csv").write_text("")
        given = [str(tmp_path / name / "studies" / "one") for name in folders or runtimes]
        monkeypatch.setattr(sys, "argv", ["compare", *given, "--output", str(tmp_path / "both")])
        compare(standalone_mode=False)
        return tmp_path / "both"

    return compare_runs


@pytest.mark.slow
def test_each_machine_has_its_row(compared):
    table = pd.read_csv(compared({"local": 10.0, "local_mpi": 20.0}) / "scaling.csv").set_index("machine")
    assert table.runtime_s.to_dict() == {"local": 10.0, "local_mpi": 20.0}
    assert table.speedup.tolist() == [1, 1], "no machine is the other's base"
    assert table.loc["local_mpi"].records.startswith("local_mpi/runs/")


@pytest.mark.slow
def test_machines_of_different_memory_modes_have_a_ratio(compared):
    folder = compared({"theta": 10.0, "theta_flat": 20.0})
    assert pd.read_csv(folder / "scaling.csv").set_index("memory_mode").runtime_s.to_dict() == {"cache": 10, "flat": 20}
    assert pd.read_csv(folder / "comparison.csv").set_index("quantity").loc["runtime_s", "ratio"] == 2


def results_of(make_recorded, tmp_path, machine, runtimes):
    """A folder of a study's results with one repeat per runtime."""
    runs = expand(gpus=1, repeats=len(runtimes))
    for run, runtime in zip(runs, runtimes, strict=True):
        make_recorded(run, runtime=runtime, load=(2.0,), machine=machine)
    made = tmp_path / machine / "studies" / "one"
    (made / "tables").mkdir(parents=True)
    frame = runs_frame(runs, {"nt3": "c0de"}, tmp_path / machine)
    frame.to_csv(made / "runs.csv", index=False)
    loading_frame([], "c0de", tmp_path / machine).to_csv(made / "loading.csv", index=False)
    (made / "tables" / "scaling.csv").write_text("")
    return made


@pytest.mark.slow
def test_two_versions_are_compared_by_label(make_run, tmp_path, monkeypatch, capsys):
    old = results_of(make_run, tmp_path, "local", [10.0, 10.1, 9.9])
    new = results_of(make_run, tmp_path, "local_mpi", [11.0, 11.1, 10.9])
    line = ["compare", f"old={old}", f"new={new}", "--output", str(tmp_path / "both")]
    monkeypatch.setattr(sys, "argv", line)
    compare(standalone_mode=False)
    table = pd.read_csv(tmp_path / "both" / "comparison.csv").set_index("quantity")
    row = table.loc["runtime_s"]
    assert (row["machine"], row["how"], row["repeats"]) == ("new", "unpaired", 3)
    assert row["ratio"] == pytest.approx(1.1, rel=1e-3)
    assert pd.isna(row["ratio_low"]), "they ran at other times"
    assert table.loc["load_s", "ratio"] == 1
    assert set(pd.read_csv(tmp_path / "both" / "scaling.csv")["machine"]) == {"old", "new"}


def of_caches(make_recorded, tmp_path, cold):
    """The comparison of two results whose loads take 9 s from storage and 3 s from the page cache, by quantity.

    cold: of each result the repeats that read from storage.
    """
    made = []
    for machine, repeats in zip(("local", "local_mpi"), cold, strict=True):
        runs = expand(gpus=1, repeats=3)
        for run in runs:
            load, place = 9.0 if run.repeat in repeats else 3.0, len(made) * 3 + run.repeat
            make_recorded(run, load=(load,), train=5.0, started=place * 10**12, machine=machine)
        frame = runs_frame(runs, {"nt3": "c0de"}, tmp_path / machine).assign(shared_read_mb=5.0)
        frame["storage_read_mb"] = [5.0 if run.repeat in repeats else 0.0 for run in runs]
        made.append(frame.assign(record=f"../{machine}/" + frame["record"]))
    return machine_comparison.compare_machines(pd.concat(made, ignore_index=True), "local").frame.set_index("quantity")


def test_loads_from_storage_are_not_compared_with_those_from_the_page_cache(make_run, tmp_path):
    """All of the base's runs were cold, none of the new ones: 3 s / 9 s says nothing of the version. Training does."""
    found = of_caches(make_run, tmp_path, cold=((1, 2, 3), ()))
    assert pd.isna(found.loc["load_s", "ratio"]) and pd.isna(found.loc["runtime_s", "ratio"])
    assert found.loc["load_s", "why_not"] == "runs that read their files from storage, and others from the page cache"
    assert found.loc["train_s", "ratio"] == pytest.approx(1)


@pytest.mark.slow
def test_later_runs_have_no_interval(compared):
    row = pd.read_csv(compared({"local": 10.0, "local_mpi": 20.0}) / "comparison.csv").set_index("quantity")
    assert row.loc["runtime_s", "ratio"] == 2
    assert row["ratio_low"].isna().all()


def test_runs_of_another_version_are_put_aside_once(make_recorded, tmp_path, monkeypatch):
    runs = expand(gpus=1, repeats=2)
    for run in runs:
        folder = make_recorded(run, load=(2.0,))
    study, results = Study("one", "", {}, runs), tmp_path / "local"
    packages = read_json(folder / "provenance.json")["packages"]
    monkeypatch.setattr(provenance, "read_package_versions", lambda framework: packages)

    monkeypatch.setattr(code_version, "digest_training_code", lambda *names, framework: "c0de")
    monkeypatch.setattr(code_version, "digest_loader_and_sensors", lambda loader, sensors: "c0de")
    assert versions.keep_other_versions(study, results) == [], "these are of the present version"
    monkeypatch.setattr(code_version, "digest_training_code", lambda *names, framework: "other")
    monkeypatch.setattr(code_version, "digest_loader_and_sensors", lambda loader, sensors: "c0de")
    (name,) = versions.keep_other_versions(study, results)
    assert name.startswith("c0de-")
    kept = results / "versions" / name
    table = pd.read_csv(kept / "studies" / "one" / "runs.csv")
    assert table["training_code"].tolist() == ["c0de", "c0de"]
    assert not table["code_is_current"].any()
    assert all((kept / record).exists() for record in table["record"])
    assert versions.keep_other_versions(study, results) == [name]

    monkeypatch.setattr(code_version, "digest_training_code", lambda *names, framework: "c0de")
    monkeypatch.setattr(code_version, "digest_loader_and_sensors", lambda loader, sensors: "c0de")
    monkeypatch.setattr(provenance, "read_package_versions", lambda framework: {**packages, "tensorflow": "3"})
    assert versions.keep_other_versions(study, results) == [name], "other libraries are another version too"
    given = machine_comparison.parse_results(str(kept / "studies" / "one"))
    assert given.name == name
