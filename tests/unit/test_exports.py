"""Exports of runs and studies: what other tools, and our own readers, find in them."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pandas as pd
import pytest
from examples import STUDY, expand

from study.commands.results import export, trace
from study.contrib.exports import study_exports
from study.core import archive
from study.core.errors import StudyError
from study.core.files import write_json
from study.experiment import expansion
from study.records.tidy import runs_frame

FINDING = {"name": "scaling", "title": "It scales", "verdict": "yes", "sentence": "By 1.8.", "quantity": "speedup",
           "unit": "", "estimate": 1.8, "low": 1.7, "high": 1.9, "blocks": 3, "blocks_disturbed": 0,
           "blocks_worth": None, "runs": 6, "left_out": [], "records": [], "figure": None, "table": None,
           "look_for": None}  # fmt: skip
BEGIN_S = 1_700_000_000
GRID = {"benchmark": "nt3", "scaling": "weak", "gpus": [1, 2, 4], "loader": "npy", "epochs": 2}


@pytest.fixture
def trained(make_run):
    """A run of two epochs, with all phases of rank 0."""
    (run,) = expand(scaling="weak", epochs=2, gpus=2)
    edges = [
        ("train", "begin", 0, 0),
        ("train", "end", 0, 2.5),
        ("evaluate", "begin", 0, 2.5),
        ("evaluate", "end", 0, 3),
    ]
    return make_run(run, more_edges=edges)


@pytest.fixture
def study(make_recorded, tmp_path):
    """The results of a study: two runs that succeeded, one that failed, and a finding."""
    runs = expansion.expand_study("one", {**STUDY, "runs": [GRID]}, "one.yaml").runs
    for place, run in enumerate(runs):
        folder = make_recorded(run, status="failed" if place == 2 else "ok", started=(BEGIN_S + 100 * place) * 10**9)
    folder = tmp_path / "local" / "studies" / "one"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "a b.csv").write_text("x\n1\n")
    runs_frame(runs, {"nt3": "c0de"}, tmp_path / "local").to_csv(folder / "runs.csv", index=False)
    write_json(folder / "findings.json", {"study": "one", "machine": "local", "findings": [FINDING]})
    return folder


def test_an_export_of_runs_has_a_file_for_each_and_says_why_not(make_run, tmp_path):
    """A run that failed before its first phase has none; of one that succeeded, a damaged file is an error."""
    planned = expansion.expand_study("one", {**STUDY, "runs": [GRID]}, "one.yaml")
    folders = [make_run(run, status="failed" if place else "ok") for place, run in enumerate(planned.runs)]
    (folders[2] / "phases.jsonl").write_text("")
    lines = list(study_exports.write_export("perfetto", planned, tmp_path / "local", tmp_path / "made"))
    table = pd.read_csv(tmp_path / "made" / study_exports.INDEX, keep_default_na=False)
    assert table["record"].tolist() == [f"runs/{run.directory}/record.json" for run in planned.runs]
    assert [(tmp_path / "made" / file).is_file() for file in table["file"]] == [True, True, False]
    assert table["file"][2] == "" and "no rank has begun a phase" in table["absent"][2]
    assert "power: telemetry.csv is missing" in table["absent"][0] and "epochs: " in table["absent"][1]
    assert lines[0].startswith(f"left out: {table['record'][2]}: ") and lines[1].endswith("2 files, and index.csv")
    (folders[0] / "phases.jsonl").write_text("")
    with pytest.raises(StudyError, match="no rank has begun a phase"):
        list(study_exports.write_export("perfetto", planned, tmp_path / "local", tmp_path / "made"))


def exported(study, tmp_path, monkeypatch, *more):
    monkeypatch.setattr(sys, "argv", ["export", "one", "--machine", "local", "--results-dir", str(tmp_path), *more])
    export(standalone_mode=False)


def test_the_archive_has_the_results_the_runs_and_the_workflow_with_their_checksums(study, tmp_path, monkeypatch):
    exported(study, tmp_path, monkeypatch, "--output", str(tmp_path / "one.tar.gz"))
    with tarfile.open(tmp_path / "one.tar.gz") as packed:
        names = {each.name.split("/", 1)[1] for each in packed.getmembers()}
        sums = packed.extractfile("local-one/SHA256SUMS").read().decode()
        found = {name: packed.extractfile(f"local-one/{name}").read() for name in names - {"SHA256SUMS"}}
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    assert dict(line.split("  ", 1)[::-1] for line in sums.splitlines()) == checksums
    records = {f"{Path(record).parent}/run.yaml" for record in pd.read_csv(study / "runs.csv")["record"]}
    assert names > {"studies/one/tables/a b.csv", "workflow/Snakefile", "workflow/rules/training.smk", *records}


def test_no_name_forges_a_checksum(tmp_path):
    names = ["a b", "a\\n", "a\n" + "0" * 64 + "  a b"]
    archive.write_archive(tmp_path / "x.tar.gz", "x", dict.fromkeys(names, b"content"))
    shutil.unpack_archive(tmp_path / "x.tar.gz", tmp_path, filter="data")
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", archive.CHECKSUMS], cwd=tmp_path / "x", capture_output=True
    )
    assert done.returncode == 0 and done.stdout.count(b": OK") == len(names)


def put_link(place, target):
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def put_pipe(place, _):
    place.unlink(missing_ok=True)
    os.mkfifo(place)


def put_path(place, target):
    """A table that names a record outside of the results."""
    frame = pd.read_csv(place)
    frame.loc[0, "record"] = os.path.relpath(target / "record.json", place.parents[2])
    frame.to_csv(place, index=False)


@pytest.mark.parametrize(
    ("place", "put"),
    [
        ("studies/one/tables/scaling.csv", put_link),
        ("studies/one/tables/folder", put_link),
        ("studies/one/findings.json", put_link),
        ("studies/one/tables/pipe", put_pipe),
        ("studies/one/runs.csv", put_path),
        ("{run}/members.csv", put_link),
        ("{run}/history.csv", put_pipe),
        ("{run}", put_link),
    ],
)
def test_what_leaves_a_received_folder_is_not_exported(study, tmp_path, monkeypatch, place, put):
    results, secret = tmp_path / "local", tmp_path / "home"
    run = Path(pd.read_csv(study / "runs.csv")["record"][0]).parent
    secret.mkdir()
    (secret / "record.json").write_text("{}")
    place = results / place.format(run=run)
    if put is put_link and place.is_dir():
        place.rename(secret / "run")
    put(place, secret)
    with pytest.raises(StudyError, match=rf"^{re.escape(str(tmp_path))}\S+: (leads to .* not in|is neither a file)"):
        exported(study, tmp_path, monkeypatch, "--output", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("begin", ["runs/../", "../local/", "{results}/"])
def test_a_name_in_an_export_leads_nowhere_else_where_it_is_unpacked(study, tmp_path, monkeypatch, begin):
    monkeypatch.chdir(tmp_path)
    frame = pd.read_csv(study / "runs.csv")
    frame.loc[0, "record"] = begin.format(results=tmp_path / "local") + frame["record"][0]
    frame.to_csv(study / "runs.csv", index=False)
    assert (tmp_path / "local" / frame["record"][0]).is_file()
    monkeypatch.setattr(sys, "argv", ["export", "one", "--machine", "local", "--results-dir", "."])
    with pytest.raises(StudyError, match="which is no path below local"):
        export(standalone_mode=False)


def test_links_within_the_results_are_exported_as_what_they_mean(study, tmp_path, monkeypatch):
    (tmp_path / "local").rename(tmp_path / "kept")
    (tmp_path / "local").symlink_to("kept")
    (study / "tables" / "b.csv").symlink_to("a b.csv")
    exported(study, tmp_path, monkeypatch, "--output", str(tmp_path / "one.tar.gz"))
    with tarfile.open(tmp_path / "one.tar.gz") as packed:
        assert packed.extractfile("local-one/studies/one/tables/b.csv").read() == b"x\n1\n"


@pytest.mark.parametrize(("put", "words"), [(put_link, "leads to"), (put_pipe, "is neither a file nor a folder")])
def test_what_leaves_a_run_s_folder_is_in_no_trace(trained, tmp_path, monkeypatch, put, words):
    put(trained / "history.csv", tmp_path / "secret")
    monkeypatch.setattr(sys, "argv", ["trace", str(trained), "--output", str(tmp_path / "trace.json")])
    with pytest.raises(StudyError, match=words):
        trace(standalone_mode=False)
