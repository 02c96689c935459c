"""Who holds the lock of a folder: alive, killed, of another host, or of another container."""

import dataclasses
import json
import os
import subprocess
import time

import pytest

from study.core.errors import StudyError
from study.workflow import lock_holder


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lock_holder.FILE.parent.mkdir(parents=True)


def _note(**changes):
    lock_holder.note_holder()
    held = dataclasses.replace(lock_holder.read_holder(), **changes)
    lock_holder.FILE.write_text(json.dumps(dataclasses.asdict(held)))


def test_the_one_at_work_is_named_and_keeps_its_lock(monkeypatch):
    monkeypatch.setattr("sys.argv", ["snakemake", "--config", "study=my study"])
    lock_holder.note_holder()
    message = lock_holder.explain_lock()
    assert f"process {os.getpid()} on {os.uname().nodename}, since {time.strftime('%Y-')}" in message
    assert "snakemake --config 'study=my study'. Wait until it ends, or end it" in message
    assert "--unlock" not in message
    with pytest.raises(StudyError, match="--unlock: .* is locked, since another Snakemake"):
        lock_holder.require_no_living_holder()


def _ended():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"pid": _ended()}, "was killed"),
        ({"start": 1}, "was killed"),  # another process has its number now
        ({"boot_id": "an earlier one"}, "was killed"),
        ({"boot_id": "of that host", "host": "login2"}, "on login2, since"),
        ({"pid_namespace": "pid:[1]"}, "Look there"),
    ],
)
def test_the_lock_of_a_killed_one_may_be_removed(changes, told):
    _note(**changes)
    assert told in lock_holder.explain_lock()
    assert "snakemake --unlock" in lock_holder.explain_lock()
    lock_holder.require_no_living_holder()
