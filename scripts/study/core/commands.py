"""Run a program and wait for its answer, but not for ever, whatever it starts.

`subprocess.run` with a time limit kills the program only, then waits for the end of its output, which a process that
the program has started may hold open for ever. Many sites have wrappers in shell around the commands of their batch
system.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping

LAST_S = 5.0  # for the output of programs that were killed


def run(
    line: list[str], limit_s: float, variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` with captured text; after ``limit_s`` seconds the program and its children are killed.

    variables: its environment; by default this process's. Bytes that are not UTF-8 are replaced.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        line,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except BaseException:
        end(process)
        raise
    return subprocess.CompletedProcess(line, process.returncode, output, errors)


def end(process: "subprocess.Popen[str]") -> str:
    """Kill a process that leads its session, with its children; returns what is left on its standard error."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        _, errors = process.communicate(timeout=LAST_S)
    except (subprocess.TimeoutExpired, ValueError):  # a child in a session of its own holds its output open
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return ""
    return errors or ""
