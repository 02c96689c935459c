"""What make status says of a study's points."""

import math
import os
import sys
import time

import pytest
from examples import STUDY

from study.commands.results import status
from study.experiment import expansion
from study.records import failures, run_states


def test_done_running_failed_and_to_do(make_run, tmp_path, monkeypatch, capsys):
    grid_of_four = {"benchmark": "nt3", "scaling": "weak", "gpus": [1, 2, 4, 6], "loader": "npy", "epochs": 1}
    study = expansion.expand_study("test", {**STUDY, "runs": [grid_of_four]}, "test.yaml")
    make_run(study.runs[0])
    make_run(study.runs[1], status="failed")
    (tmp_path / "local" / "runs" / study.runs[2].directory / "ranks").mkdir(parents=True)
    monkeypatch.setattr(expansion, "load_study", lambda name, on: study)
    monkeypatch.setattr(sys, "argv", ["status", "--machine", "local", "--results-dir", str(tmp_path)])
    status(standalone_mode=False)
    said = capsys.readouterr().out
    assert "4 runs: 1 done, 1 running, 1 failed, 1 to do" in said
    assert f"failed: {study.runs[1].directory}: oom in train: no memory" in said
    assert f"running: {study.runs[2].directory}" in said
    old = time.time() - 600
    os.utime(tmp_path / "local" / "runs" / study.runs[2].directory / "ranks", (old, old))
    status(standalone_mode=False)
    said = capsys.readouterr().out
    assert "4 runs: 1 done, 1 silent, 1 failed, 1 to do" in said
    assert f"silent: {study.runs[2].directory}: no heartbeat for 600 s" in said


@pytest.mark.parametrize(
    ("kind", "message", "told"),
    [("error", "error: no file x", "no file x"), ("oom", "no memory", "oom: no memory"), ("error", "x", "x")],
)
def test_a_failure_is_told_without_doubled_words(kind, message, told):
    assert failures.cause(kind, message) == told
    assert math.isnan(failures.message(math.nan)), "of a load that has none"
    assert failures.run_name("mine", "weak", 1, "none") == "mine, weak scaling, 1 rank"
    assert failures.run_name("nt3", "weak", 2, "npy") == "nt3, weak scaling, 2 ranks, npy"


def test_a_run_that_ends_while_its_state_is_read_is_running(tmp_path, monkeypatch):
    (tmp_path / "ranks").mkdir()
    monkeypatch.setattr(run_states, "hosts", lambda folder: (folder / "ranks").rmdir() or "")
    assert run_states.state(tmp_path) == ("running", "")
