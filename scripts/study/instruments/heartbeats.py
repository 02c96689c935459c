"""Heartbeats of a run's ranks: with them the watchdog finds a run that hangs long before its time limit.

Each rank touches its own file, at most twice a minute, if it made progress. In training, progress is a step. In other
phases it is a new phase; while loading, preprocessing or evaluating it is also processor time or bytes read. Waiting
for other ranks does not count as progress, and neither does the work of Horovod's threads. The launching process checks
the age of the latest heartbeat.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from study.core.files import AnyPath
from study.instruments import counters
from study.instruments.phases import PhaseLog

LIMIT_S = 900  # without a heartbeat; default if the machine's file gives no limit
LONGEST_INTERVAL_S = 30.0
LIMIT_VARIABLE = "STUDY_STALL_LIMIT_S"
BUSY_PHASES = frozenset({"startup", "load", "stage", "preprocess", "evaluate", "checkpoint"})
OWN_READING = 4096  # bytes, at most, that one check reads itself
BUSY_SHARE = 0.1  # of a core; above this share a rank in one of these phases is making progress

# Phase, steps made, monotonic seconds, processor seconds, bytes read.
Progress = tuple[str | None, int | None, float, float, int]


class Heartbeat:
    """Sends the heartbeats of one rank, from its creation to the end of the process."""

    def __init__(self, folder: AnyPath, limit_s: float) -> None:
        """folder: of the run's ranks. limit_s: the longest time that all ranks together may go without a heartbeat."""
        self._path = Path(folder) / f"heartbeat-{socket.gethostname()}-{os.getpid()}"
        self._interval = min(LONGEST_INTERVAL_S, limit_s / 6)
        self.phases: PhaseLog | None = None  # the rank's `study.instruments.phases.PhaseLog`, once it knows its rank
        self.steps: Callable[[], int] | None = None  # gives the number of training steps made, in training
        # Those in which processor time is progress; also "train" in a rank that waits for no other.
        self.busy_phases = BUSY_PHASES
        # Threads whose work does not count as progress: Horovod's, which are busy while they wait.
        self.ignored: Iterable[int] = frozenset()
        threading.Thread(target=self._watch, daemon=True).start()

    def beat(self) -> None:
        """Send a heartbeat: for progress that this class cannot see."""
        with contextlib.suppress(OSError):  # a full disk is reported where it matters
            self._path.touch()

    def _watch(self) -> None:
        before: Progress | None = None
        while True:
            present = self._read_progress()
            if before is None or self._has_progressed(before, present, self.busy_phases):
                self.beat()
            before = present
            time.sleep(self._interval)

    def _read_progress(self) -> Progress:
        phase = self.phases.current if self.phases else "startup"
        steps = self.steps() if phase == "train" and self.steps else None
        cpu_s = time.process_time() - counters.sum_thread_cpu_s(self.ignored)
        return phase, steps, time.monotonic(), cpu_s, _count_bytes_read()

    @staticmethod
    def _has_progressed(before: Progress, present: Progress, busy_phases: frozenset[str] = BUSY_PHASES) -> bool:
        if before[:2] != present[:2]:
            return True
        has_read = present[4] - before[4] > OWN_READING
        is_busy = present[3] - before[3] > BUSY_SHARE * (present[2] - before[2])
        return present[0] in busy_phases and (is_busy or has_read)


def _count_bytes_read() -> int:
    """Bytes that this process has read with read() and similar calls; 0 if the kernel does not report it."""
    try:
        with open("/proc/self/io", "rb") as handle:
            return int(handle.readline().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def start_heartbeat(folder: AnyPath) -> Heartbeat | None:
    """The `Heartbeat` of this process, a rank; None if no watchdog was started. folder: of the run's ranks."""
    limit = os.environ.get(LIMIT_VARIABLE)
    return Heartbeat(folder, float(limit)) if limit else None


def read_limit_s() -> float:
    """The longest time that all ranks of this run together may go without a heartbeat."""
    return float(os.environ.get(LIMIT_VARIABLE, LIMIT_S))


def read_latest_heartbeat(folder: Path) -> float:
    """Time (seconds since 1970) of the latest heartbeat of any rank. folder: of the run's ranks."""
    files = [folder, *folder.glob("heartbeat-*"), *folder.glob("phases-*")]
    times = []
    for file in files:
        with contextlib.suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times, default=0.0)
