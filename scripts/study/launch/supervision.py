"""Supervise a launcher until it ends, hits a limit, or this process gets a signal; leave no process behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from study.core import commands, signals
from study.core.errors import StudyError
from study.instruments.phases import now
from study.instruments.standstill import StandstillClock
from study.machines import guard
from study.machines.launchers import TAG
from study.training import process_tree

LAST_LINES = 2000
GRACE_S = 10
KILLED_S = 60.0  # for the end of a process that was killed
CHECK_PAUSE_S = 1.0  # between two checks for heartbeats, at least
CHECK_SHARE = 0.02  # of the time, at most, is spent on them: thousands of ranks have as many files, on shared storage
CHECKS_PER_STALL = 10  # within the longest time without a heartbeat, at least


@dataclass(frozen=True)
class LauncherEnd:
    """How a launcher's command line ended.

    stopped: (kind, message) if this process ended it, or None. killed_for_memory: processes of this host that the
    kernel ended meanwhile for want of memory. stood_still_s: for how long this process stood still meanwhile.
    """

    exit_code: int
    stopped: tuple[str, str] | None
    last_lines: list[str]
    began_wall_ns: int
    ended_wall_ns: int  # begin plus monotonic duration
    killed_for_memory: int
    stood_still_s: float = 0.0


def run_launcher(
    line: list[str], variables: dict[str, str], log: Path, lock_descriptors: Sequence[int], limits: Limits
) -> LauncherEnd:
    """Run the command line of a launcher in its own session until it ends or hits a limit.

    variables: its environment. log: the file that receives a copy of its output. lock_descriptors: of locks that it
    holds. SIGTERM and SIGHUP that are not ignored end it too, and then this process, as `SystemExit`, unless they are
    due to the batch job's walltime.
    """
    last_lines: deque[str] = deque(maxlen=LAST_LINES)
    watch = _Watch(limits)
    began_wall, began = now()
    killed_before = process_tree.count_memory_kills()
    # From before the start, so that a signal in between has the same exit code.
    with signals.replace_handlers(signals.exit_on_signal, signals.TERMINATING):
        process = _start_guarded(line, variables, lock_descriptors)
        reader = threading.Thread(target=_copy_output, args=(process.stdout, log, last_lines), daemon=True)
        try:
            reader.start()
            stopped = watch.wait(process)
        except SystemExit:
            if not limits.is_last_moment(time.time()):
                raise
            stopped = "timeout", "its batch job reached its walltime, and the batch system ended it"
        finally:
            _end_session(process)
            guard.remove(guard.name_temporary_folder(process.pid, variables))  # if the guard itself was killed
    reader.join(GRACE_S)  # longer only if a process that cannot be killed holds the output open
    if process.stdin is not None:
        process.stdin.close()
    duration = time.monotonic_ns() - began
    killed = process_tree.count_memory_kills() - killed_before
    ended_wall = began_wall + duration
    return LauncherEnd(
        process.returncode, stopped, list(last_lines), began_wall, ended_wall, killed, watch.stood_still_s
    )


def _start_guarded(
    line: list[str], variables: dict[str, str], lock_descriptors: Sequence[int]
) -> subprocess.Popen[str]:
    """Start the command line in a session of its own, under the guard that ends it when this process is gone."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, *line],
        env=variables,
        stdin=subprocess.PIPE,  # never written to: it closes when this process ends, which the guard detects
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=tuple(lock_descriptors),  # held for as long as the launcher lives, whatever becomes of this process
    )


@dataclass(frozen=True)
class Limits:
    """When to end a run. time_s: its time limit; stall_s: the longest time without a heartbeat from any rank.

    last_heartbeat: returns a value that changes with every heartbeat. is_last_moment: from the time (s) to whether a
    signal at that time is due to the batch job's walltime.
    """

    time_s: float
    stall_s: float
    last_heartbeat: Callable[[], float]
    is_last_moment: Callable[[float], bool]


class _Watch:
    """Waits for a run's end or a limit. Time in which this process stood still counts for no limit.

    stood_still_s: the sum of it so far.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._clock, self.stood_still_s = limits, StandstillClock(), 0.0

    def wait(self, process: subprocess.Popen) -> tuple[str, str] | None:
        """Wait; (kind, message) of the limit that was hit, None if the process ended by itself."""
        limits, begun = self._limits, self._read_time_s()
        last_heartbeat_at, last_heartbeat, pause = begun, limits.last_heartbeat(), CHECK_PAUSE_S
        while True:
            now_s = self._read_time_s()
            if now_s - begun >= limits.time_s:
                return "timeout", "the run reached its time limit and was ended"
            if now_s - last_heartbeat_at >= limits.stall_s:
                text = f"no rank sent a heartbeat for {limits.stall_s:g} s (stall_limit_s), and the run was ended"
                return "hang", text
            due_s = min(pause, limits.time_s - (now_s - begun))
            self._clock.restart()
            has_ended = commands.wait_for_end(process, due_s)
            self.stood_still_s += self._clock.read_standstill_s(due_s)
            if has_ended:
                return None
            check_begun = time.monotonic()
            latest = limits.last_heartbeat()
            pause = _compute_pause_s(time.monotonic() - check_begun, limits.stall_s)
            if latest != last_heartbeat:
                last_heartbeat, last_heartbeat_at = latest, self._read_time_s()

    def _read_time_s(self) -> float:
        """Monotonic seconds without those in which this process stood still."""
        return time.monotonic() - self.stood_still_s


def _compute_pause_s(check_s: float, stall_s: float) -> float:
    """Seconds until the next check for heartbeats. check_s: the last one took. stall_s: longest without a heartbeat."""
    return max(CHECK_PAUSE_S, min(check_s / CHECK_SHARE, stall_s / CHECKS_PER_STALL))


def _copy_output(stream: IO[str], log: Path, last_lines: deque[str]) -> None:
    """Copy the ranks' output to the log; epochs and errors also go to standard error at once."""
    handle = open(log, "w", encoding="utf-8")  # noqa: SIM115  closed below, where a full disk is ignored too
    for text in stream:
        with contextlib.suppress(OSError):  # with a full disk the pipe must still be emptied, or the ranks stop
            handle.write(text)
            handle.flush()
        last_lines.append(text.rstrip("\n"))
        bare = TAG.sub("", last_lines[-1])
        if bare.startswith(("epoch ", "error: ")):
            print(bare, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        handle.close()


def _end_session(process: subprocess.Popen) -> None:
    """End the remaining processes of the session: SIGTERM first, then SIGKILL.

    Raises `StudyError` if that does not end it.
    """
    for number, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILLED_S)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                continue
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # ranks whose launcher is gone
    if process.poll() is None:
        raise StudyError(
            f"process {process.pid} cannot be killed: it waits for a device or a file server that does not answer; see "
            "that this is repaired (dmesg), or restart this host, then run again"
        )
