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
    """Start the program on the command line as often as told; returns the exit code of the first failed one, else 0."""
    number, program = int(sys.argv[1]), sys.argv[2:]
    started: list[subprocess.Popen[bytes]] = []
    arrived_signals: list[int] = []  # signals; an exception from a handler could lose a process that is being started
    signals.set_handlers(lambda number, _: arrived_signals.append(number))
    copies: list[threading.Thread] = []
    try:
        for rank in range(number):
            if arrived_signals:
                break
            variables = {**os.environ, "RANK": str(rank)}
            process = subprocess.Popen(program, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            started.append(process)
            for name, stream, target in (
                ("stdout", process.stdout, sys.stdout),
                ("stderr", process.stderr, sys.stderr),
            ):
                prefix = f"[{rank}]<{name}>:".encode()
                copies.append(_start_copying(cast(IO[bytes], stream), target.buffer, prefix))
        return _wait_for_processes(started, arrived_signals)
    finally:
        _end_processes(started)
        for copy in copies:
            copy.join(GRACE_S)


def _start_copying(source: IO[bytes], target: IO[bytes], prefix: bytes) -> threading.Thread:
    """Start a thread that copies each line of a stream with a prefix, and return it."""

    def copy() -> None:
        for line in source:
            with contextlib.suppress(OSError):
                target.write(prefix + line.rstrip(b"\n") + b"\n")
                target.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _wait_for_processes(started: list[subprocess.Popen[bytes]], arrived_signals: list[int]) -> int:
    """Wait until all processes have ended, one has failed or a signal has arrived; returns the exit code."""
    running = dict(enumerate(started))
    while running and not arrived_signals:
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
    return 128 + arrived_signals[0] if arrived_signals else 0


def _end_processes(started: list[subprocess.Popen[bytes]]) -> None:
    """End the processes that still run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_S
        for process in started:
            if process.poll() is None:
                process.send_signal(number)
        while any(process.poll() is None for process in started) and time.monotonic() < deadline:
            time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
