"""Cost of a run's start and end, against a bare launch with ranks that only import the framework and join."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import whole_runs
from ratios import alternate, compute_ratio

from study.core.paths import SCRIPTS
from study.launch import variables
from study.machines import launchers, machine

RANKS = (1, 2)
ROUNDS = 3
BARE = Path(__file__).with_name("bare_rank.py")
FRAMEWORKS = {"tensorflow": {}, "pytorch": {"framework": "pytorch", "strategy": "ddp"}}


def measure_start(folder):
    """Measure start and end of runs of P1B2 on 600 rows against bare launches; whole runs are in part ``run``."""
    for framework, keys in FRAMEWORKS.items():
        for ranks in RANKS:
            run = whole_runs.define_one_epoch(folder, "mapped", gpus=ranks, **keys)
            measures = {
                "bare": partial(_time_bare_launch, run, folder),
                "ours": partial(_time_around_phases, run, folder / "run"),
            }
            seconds_by_arm = alternate(f"start of {ranks} ranks with {framework}", ROUNDS, measures)
            name = f"start and end of a run{_name_framework(framework)}, {ranks} rank{'s' * (ranks > 1)}"
            yield compute_ratio(name, seconds_by_arm["ours"], "bare launch", seconds_by_arm["bare"], "times as long")
            yield compute_ratio(name, seconds_by_arm["ours"], "1 s", [1.0] * ROUNDS, "s")


def _name_framework(framework):
    """Name PyTorch in a result; empty for TensorFlow."""
    return " with PyTorch" if framework == "pytorch" else ""


def _time_bare_launch(run, folder):
    """Time a launch whose ranks join and end, in the environment of a run's ranks."""
    meeting = (folder / "bare_ranks").resolve()
    meeting.unlink(missing_ok=True)
    started = [sys.executable, str(BARE), run.framework, str(meeting)]
    line = [*launchers.get_launcher(run.machine).line(run.ranks, machine.load("local")), *started]
    begun = time.perf_counter()
    subprocess.run(
        line,
        env=variables.make_rank_environment(run, folder, 600, os.environ),
        cwd=SCRIPTS.parent,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - begun


def _time_around_phases(run, folder):
    """Time a run from the start of the launcher to its end, without rank 0's phases after startup."""
    times = whole_runs.launch_run(run, folder)
    return times["runtime_s"] - times["phases_s"]
