"""Run a launcher's command line to its end, its time limit or the signal that ends us; nothing of it is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from study.launch import guard
from study.launch.failure import TAG

LAST_LINES = 2000
GRACE_S = 10
LOOK_S = 1.0  # between two looks for signs of life


def execute(line, variables, log, lock, until):
    """Run ``line`` in a session of its own; returns (exit code, why it was stopped or None, its last lines).

    variables: its environment. log: the file that what it prints is copied to. lock: a file descriptor that it holds.
    until: the `Limits` that end it. SIGTERM and SIGHUP end it too, and this process, as `SystemExit`, unless they are
    those of the batch job's walltime.
    """
    last_lines = deque(maxlen=LAST_LINES)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, *line],
        env=variables,
        stdin=subprocess.PIPE,  # never written to: it tells the guard that this process is there
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(lock,),  # held for as long as the launcher lives, whatever becomes of this process
    )
    reader = threading.Thread(target=_follow, args=(process.stdout, log, last_lines))
    reader.start()
    with _signals_as_exit():
        try:
            stopped = _wait(process, until)
        except SystemExit:
            if not until.is_last_moment():
                raise
            stopped = "timeout", "its batch job reached its walltime, and the batch system ended it"
        finally:
            _end(process)
    reader.join()
    process.stdin.close()
    return process.returncode, stopped, list(last_lines)


@dataclass(frozen=True)
class Limits:
    """What ends a run. time_s: its time limit; stall_s: how long no rank may give a sign of life.

    last_sign: gives a value that changes with every sign of life. is_last_moment: tells whether a signal that comes now
    is that of the batch job's walltime.
    """

    time_s: float
    stall_s: float
    last_sign: Callable
    is_last_moment: Callable


def _wait(process, until):
    """Wait for the end of the process or for what ends it: (kind, message), or None where it ended by itself."""
    begun = seen_at = time.monotonic()
    seen = until.last_sign()
    while True:
        present = time.monotonic()
        if present - begun >= until.time_s:
            return "timeout", "the run reached its time limit and was ended"
        if present - seen_at >= until.stall_s:
            return "hang", f"no rank made progress for {until.stall_s:g} s, and the run was ended"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=min(LOOK_S, until.time_s - (present - begun)))
            return None
        latest = until.last_sign()
        if latest != seen:
            seen, seen_at = latest, time.monotonic()


@contextlib.contextmanager
def _signals_as_exit():
    """SIGTERM and SIGHUP as `SystemExit` for a while, so that the ranks are ended too."""

    def leave(number, _):
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(stream, log, last_lines):
    """Copy the ranks' output to the log; epochs and errors also go to standard error as they come."""
    handle = open(log, "w", encoding="utf-8")  # noqa: SIM115  closed below, where a full disk must not matter either
    for text in stream:
        with contextlib.suppress(OSError):  # a full disk must not stop the ranks at a full pipe
            handle.write(text)
            handle.flush()
        last_lines.append(text.rstrip("\n"))
        bare = TAG.sub("", last_lines[-1])
        if bare.startswith(("epoch ", "error: ")):
            print(bare, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        handle.close()


def _end(process):
    """End what is left of the process's session: first asked, then killed."""
    for number, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                continue
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # ranks whose launcher is gone
