"""Run a launcher's command line to its end, its time limit or the signal that ends us; nothing of it is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque

from study.failure import TAG

LAST_LINES = 200
GRACE_S = 10


def execute(line, variables, log, limit_s, lock, is_last_moment):
    """Run ``line`` in a session of its own; returns (exit code, why its time was over or None, its last lines).

    variables: its environment. log: the file that what it prints is copied to. lock: a file descriptor that it holds.
    is_last_moment: tells whether a SIGTERM or SIGHUP that comes now is the end of the batch job's walltime; at any
    other time they end this process too, as `SystemExit`.
    """
    last_lines = deque(maxlen=LAST_LINES)
    process = subprocess.Popen(
        line,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(lock,),  # held for as long as the launcher lives, whatever becomes of this process
    )
    reader = threading.Thread(target=_follow, args=(process.stdout, log, last_lines))
    reader.start()
    stopped = None
    with _signals_as_exit():
        try:
            process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            stopped = "the run reached its time limit and was ended"
        except SystemExit:
            if not is_last_moment():
                raise
            stopped = "its batch job reached its walltime, and the batch system ended it"
        finally:
            _end(process)
    reader.join()
    return process.returncode, stopped, list(last_lines)


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
    with open(log, "w", encoding="utf-8") as handle:
        for text in stream:
            with contextlib.suppress(OSError):  # a full disk must not stop the ranks at a full pipe
                handle.write(text)
                handle.flush()
            last_lines.append(text.rstrip("\n"))
            bare = TAG.sub("", last_lines[-1])
            if bare.startswith(("epoch ", "error: ")):
                print(bare, file=sys.stderr, flush=True)


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
