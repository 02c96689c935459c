"""What make status says of a study's points."""

import argparse
import math
import os
import sys
import time

import pytest
from examples import STUDY

from study.commands import options
from study.commands.results import status
from study.core import number_types
from study.core.errors import StudyError
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


def test_a_machine_that_does_not_exist_has_no_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["status", "--machine", "lokal", "--results-dir", str(tmp_path)])
    with pytest.raises(StudyError, match=r"there is no machine 'lokal' .*; did you mean 'local'\?"):
        status(standalone_mode=False)
    monkeypatch.setattr(sys, "argv", ["status", "--machine", "summit", "--results-dir", str(tmp_path)])
    status(standalone_mode=False)


@pytest.mark.parametrize(
    ("kind", "text"),
    [(number_types.parse_count, "0"), (number_types.parse_count, "-5"), (number_types.parse_count, "1.5"),
     (number_types.parse_seconds, "-4"), (number_types.parse_seconds, "nan"), (number_types.parse_seconds, "inf"),
     (number_types.parse_rate, "0"), (options.FOLDER.function, "")],
)  # fmt: skip
def test_arguments_that_would_measure_nothing_are_refused(kind, text):
    with pytest.raises((argparse.ArgumentTypeError, ValueError), match="must be"):
        kind(text)
