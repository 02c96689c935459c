"""A fixed computation, timed just before and just after a run: how fast the host was at that time.

A run's time divided by this time hardly changes when other users slow down a shared host. The computation uses numpy
and Python only, so that no change of the study's code changes it.
"""

import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from study.core import cores, environment
from study.core.errors import StudyError
from study.core.paths import SCRIPTS

VERSION = 1  # raise it when `run_once` changes: its times are then not comparable with earlier ones
FILE = "calibration.json"  # in the run's directory
ROUNDS = 5  # before the run, and as many after it; a fraction of a second each
SIZE = 384  # of the multiplied matrices: they stay in a core's cache
LENGTH = 4_000_000  # float32 elements of the added arrays, 16 MB each: they do not
TIMEOUT_S = 300


def run_once() -> float:
    """Run the computation once: matrix products, passes over memory, interpreted Python. Returns seconds."""
    square, line = np.full((SIZE, SIZE), 0.5, dtype=np.float32), np.ones(LENGTH, dtype=np.float32)
    product, total = np.empty_like(square), np.zeros_like(line)
    begun = time.perf_counter()
    for _ in range(80):
        np.matmul(square, square, out=product)
    for _ in range(40):
        np.add(line, total, out=total)
    counts: dict[int, int] = {}
    for number in range(400_000):
        counts[number % 1000] = counts.get(number % 1000, 0) + number
    return time.perf_counter() - begun


def time_rounds(processes: int) -> list[float]:
    """Time the computation in several processes at the same time, each on one thread: seconds of every round.

    Raises:
        StudyError: one of them failed.
    """
    line = [sys.executable, str(SCRIPTS / "calibrate.py"), "--rounds", str(ROUNDS)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    variables, pipe = {**environment.build_measuring_environment(os.environ), **one_thread}, subprocess.PIPE
    # In a session of its own, as the ranks are: Linux shares the processors among sessions (sched_autogroup_enabled).
    start = functools.partial(subprocess.Popen, line, env=variables, text=True, start_new_session=True)
    workers: list[Any] = [start(stdin=pipe, stdout=pipe) for _ in range(processes)]
    timer = threading.Timer(TIMEOUT_S, lambda: [worker.kill() for worker in workers])  # one may hang in an import
    timer.start()
    try:
        for worker in workers:
            worker.stdout.readline()  # it has imported numpy
        for worker in workers:
            worker.stdin.write("begin\n")
            worker.stdin.flush()
        return [seconds for worker in workers for seconds in json.loads(worker.communicate(timeout=TIMEOUT_S)[0])]
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise StudyError(f"the calibration could not be timed: {error}; see the message above") from None
    finally:
        timer.cancel()
        for worker in workers:
            worker.kill()
            worker.wait()


def count_processes(ranks: int, cores_per_rank: int) -> int:
    """Number of cores of this host that the run keeps busy: as many processes are timed."""
    return max(1, min(ranks * cores_per_rank, cores.count_threads()))


def summarize(before: list[float], after: list[float], processes: int) -> dict[str, Any]:
    """The content of `FILE`. ``calibration_s``: the mean of the medians before and after the run, in seconds."""
    return {
        "calibration_s": (statistics.median(before) + statistics.median(after)) / 2,
        "version": make_version(),
        "host": platform.node(),
        "processes": processes,
        "before_s": before,
        "after_s": after,
    }


def make_version() -> str:
    """The version of the computation, whose time depends on its code and NumPy, besides the host."""
    return f"{VERSION}, numpy {np.__version__}"
