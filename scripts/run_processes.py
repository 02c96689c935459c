"""The launcher `processes`: start a program several times on this host, each with its rank, and end all if one fails.

run_processes.py NUMBER PROGRAM...

Each process has its rank in the variable RANK. Its lines get the prefix that horovodrun gives them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, cast

from study.core import signals

GRACE_S = 10.0  # for processes that get SIGTERM
LOOK_S = 0.02


def main() -> int:
    """Read the command line and do it; returns the exit code of the first process that failed, else 0."""
    number, program = int(sys.argv[1]), sys.argv[2:]
    started: list[subprocess.Popen[bytes]] = []
    came: list[int] = []  # signals; an exception from a handler could lose a process that is being started
    signals.handle(lambda number, _: came.append(number))
    copies: list[threading.Thread] = []
    try:
        for rank in range(number):
            if came:
                break
            variables = {**os.environ, "RANK": str(rank)}
            process = subprocess.Popen(program, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            started.append(process)
            for name, stream, target in (
                ("stdout", process.stdout, sys.stdout),
                ("stderr", process.stderr, sys.stderr),
            ):
                prefix = f"[{rank}]<{name}>:".encode()
                copies.append(_copied(cast(IO[bytes], stream), target.buffer, prefix))
        return _waited(started, came)
    finally:
        _end(started)
        for copy in copies:
            copy.join(GRACE_S)


def _copied(source: IO[bytes], target: IO[bytes], prefix: bytes) -> threading.Thread:
    """A thread that copies each line with a prefix."""

    def copy() -> None:
        for line in source:
            with contextlib.suppress(OSError):
                target.write(prefix + line.rstrip(b"\n") + b"\n")
                target.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _waited(started: list[subprocess.Popen[bytes]], came: list[int]) -> int:
    """Wait until all have ended, or one has failed, or a signal has come; returns the exit code."""
    running = dict(enumerate(started))
    while running and not came:
        for rank, process in list(running.items()):
            code = process.poll()
            if code is None:
                continue
            del running[rank]
            if code:
                print(
                    f"Process {rank} exit with status code {code if code > 0 else 128 - code}",
                    file=sys.stderr,
                    flush=True,
                )
                return code if code > 0 else 128 - code
        time.sleep(LOOK_S)
    return 128 + came[0] if came else 0


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """End those that still run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_S
        for process in started:
            if process.poll() is None:
                process.send_signal(number)
        while any(process.poll() is None for process in started) and time.monotonic() < deadline:
            time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
