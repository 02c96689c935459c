"""Start and end of a run against a bare launch: the same launcher, and ranks that import the framework and join."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import whole_runs
from ratios import alternate, compared

from study.core.paths import SCRIPTS
from study.launch import variables
from study.machines import launchers, machine

RANKS = (1, 2)
ROUNDS = 3
BARE = Path(__file__).with_name("bare_rank.py")
FRAMEWORKS = {"tensorflow": {}, "pytorch": {"framework": "pytorch", "strategy": "ddp"}}


def start_ratios(folder):
    """Runs of P1B2 on 600 rows without their phases but startup; their whole time is in part ``run``."""
    for framework, keys in FRAMEWORKS.items():
        for ranks in RANKS:
            run = whole_runs.one_epoch(folder, "mapped", gpus=ranks, **keys)
            measures = {"bare": partial(_bare, run, folder), "ours": partial(_around_phases, run, folder / "run")}
            found = alternate(f"start of {ranks} ranks with {framework}", ROUNDS, measures)
            name = f"start and end of a run{_of(framework)}, {ranks} rank{'s' * (ranks > 1)}"
            yield compared(name, found["ours"], "bare launch", found["bare"], "times as long")
            yield compared(name, found["ours"], "1 s", [1.0] * ROUNDS, "s")


def _of(framework):
    return " with PyTorch" if framework == "pytorch" else ""


def _bare(run, folder):
    """Seconds of a launch whose ranks join and end, in the environment of a run's ranks."""
    meeting = (folder / "bare_ranks").resolve()
    meeting.unlink(missing_ok=True)
    started = [sys.executable, str(BARE), run.framework, str(meeting)]
    line = [*launchers.get_launcher(run.machine).line(run.ranks, machine.load("local")), *started]
    begun = time.perf_counter()
    subprocess.run(
        line, env=variables.of_ranks(run, folder, 600, os.environ), cwd=SCRIPTS.parent, check=True, capture_output=True
    )
    return time.perf_counter() - begun


def _around_phases(run, folder):
    """Seconds of a run, from the start of the launcher to its end, without rank 0's phases but startup."""
    found = whole_runs.launched(run, folder)
    return found["runtime_s"] - found["phases_s"]
