"""The report's first page tells the machine, every failure with its reason, and every run."""

import json

import pandas as pd
import pytest
from examples import expand

from study.core import provenance
from study.core.files import write_json
from study.experiment.study import Study
from study.machines import machine
from study.records import tidy
from study.records.record import make_record
from study.report.overview import overview

MACHINE = machine.load("local")


@pytest.fixture
def made(make_run, tmp_path):
    """The page of a study of two runs, one of which failed."""

    def make(**facts):
        runs = expand(gpus=[1, 2], may_fail="the paper's ran out of memory")
        for run, more in zip(runs, ({}, {"status": "failed", **facts}), strict=True):
            folder = make_run(run, **more)
            record = make_record(folder)
            full = provenance.collect() | json.loads((folder / "provenance.json").read_text())
            full["host"] |= {"cpu": "a processor", "cores": 4, "memory_mb": 16000, "system": "Linux"}
            (folder / "provenance.json").write_text(json.dumps(full))
            record["files"] = {}
            write_json(folder / "record.json", record)
        frame = tidy.runs_frame(runs, {"nt3": "c0de"}, tmp_path / "local")
        study = Study("test", "a <small> study", {}, runs)
        return overview(study, MACHINE, frame, tidy.loading_frame([], "c0de", tmp_path), tmp_path / "local")

    return make


def test_the_machine_is_told(made):
    page = made()
    assert "a &lt;small&gt; study" in page
    assert "host n1: a processor, 2 of 4 cores, 16 GB memory; no GPU seen" in page
    assert page.count("host n1") == 1, "a host is told once"


def test_failures_are_told_with_their_reason_and_record(made):
    page = made(kind="oom")
    assert "oom in train: no memory. This was expected: the paper&#x27;s ran out of memory." in page
    assert "Nothing failed" not in page


def test_every_run_is_there(made):
    page = made()
    for gpus, status in ((1, "ok"), (2, "failed")):
        (row,) = [line for line in page.split("The runs")[1].split("<tr>") if f"gpus~{gpus}" in line]
        assert f"<td>{status}</td>" in row


def test_the_top_of_a_profile_is_told(made, make_run, tmp_path):
    assert "The profiles" not in made()
    (run,) = expand(gpus=4, profile=True)
    folder = make_run(run)
    write_json(folder / "record.json", make_record(folder))
    frame = tidy.runs_frame([run], {"nt3": "c0de"}, tmp_path / "local")
    provenance_file = folder / "provenance.json"
    full = provenance.collect() | json.loads(provenance_file.read_text())
    full["host"] |= {"cpu": "a processor", "cores": 4, "memory_mb": 16000, "system": "Linux"}
    provenance_file.write_text(json.dumps(full))
    loads = tidy.loading_frame([], "c0de", tmp_path)
    page = overview(Study("test", "", {}, [run]), MACHINE, frame, loads, tmp_path / "local")
    assert "json/__init__.py" in page.split("The profiles")[1]


def test_a_study_of_loads_alone(tmp_path):
    content = {"provenance": provenance.collect()}
    write_json(tmp_path / "loading.json", content)
    loads = pd.DataFrame([{"record": "loading.json", "status": "failed", "loader": "dask", "benchmark": "nt3",
                           "file": "train", "message": "exit code 1: no"}])  # fmt: skip
    page = overview(Study("test", "loads", {}), MACHINE, pd.DataFrame(), loads, tmp_path)
    assert "dask on nt3 train: exit code 1: no" in page
    assert "This study has no runs." in page
    assert "1 loads: loading.json" in page
