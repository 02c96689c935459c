"""Snakemake leaves the machine to a run that is measured."""

import os
import signal
import subprocess

import psutil
import pytest
from project import BIN, TINY, wait_for

# One run starts at once, the others are ready and wait for it; the conversions have ended before.
STUDY = (
    TINY[: TINY.index("  wide:")]
    + """runs:
  - {benchmark: nt3, scaling: weak, epochs: 2, gpus: 1, loader: npy, repeats: 60}
tables: [scaling]
"""
)
WATCHED_S = 5.0
MOST = 0.03  # of a core


@pytest.fixture
def held(fresh):
    """Snakemake with a first run that trains, and waits, until the test ends."""
    fresh.add_study("idle", STUDY)
    fresh.hold_training(after=1)
    line = [BIN / "snakemake", "--profile", "profiles/local", "--config", "study=idle"]
    process = subprocess.Popen(
        line, cwd=fresh.root, env=fresh.variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    yield fresh, process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.long
def test_snakemake_does_nothing_while_a_run_trains(held):
    project, process = held

    def trains():
        return any("epoch 1/" in path.read_text() for path in project.results.rglob("train.log"))

    wait_for(trains, process)
    watched = psutil.Process(process.pid)
    before = sum(watched.cpu_times()[:2])
    with pytest.raises(psutil.TimeoutExpired):
        watched.wait(WATCHED_S)
    assert sum(watched.cpu_times()[:2]) - before < MOST * WATCHED_S
