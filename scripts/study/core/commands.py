"""Run a program and wait for its answer, but not for ever, whatever it starts.

`subprocess.run` with a time limit kills the program only: what the program has started goes on. Many sites have
wrappers in shell around the commands of their batch system.
"""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

LAST_S = 5.0  # for the output of programs that were killed


def start_program(
    line: list[str],
    variables: Mapping[str, str] | None = None,
    *,
    reads: bool = False,
    leads_session: bool = True,
) -> "subprocess.Popen[str]":
    """Start a program and return its process; its output is read as text, bytes that are not UTF-8 replaced.

    variables: its environment; by default this process's. reads: whether this process writes to its standard input,
    which is empty otherwise. leads_session: in a session of its own, so that `kill_session` can kill its children too;
    no signal to this process's group reaches it there.

    Raises:
        OSError: it cannot be started.
    """
    return subprocess.Popen(
        line,
        env=variables,
        stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=leads_session,
    )


def run_program(
    line: list[str], limit_s: float, variables: Mapping[str, str] | None = None, text: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program and return its output, as `subprocess.run`; it and its children are killed after ``limit_s``.

    variables: its environment; by default this process's. text: its standard input, which is empty by default. Bytes
    of its output that are not UTF-8 are replaced.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
        OSError: it cannot be started.
    """
    process = start_program(line, variables, reads=text is not None)
    try:
        output, errors = process.communicate(text, timeout=limit_s)
    except BaseException:
        kill_session(process)
        raise
    return subprocess.CompletedProcess(line, process.returncode, output, errors)


def wait_for_end(process: "subprocess.Popen[Any]", limit_s: float) -> bool:
    """True if a child process ends within ``limit_s`` seconds; returns as soon as it has.

    `subprocess.Popen.wait` with a time limit looks 20 times per second, and notices the end up to 50 ms late.
    """
    try:
        descriptor = os.pidfd_open(process.pid)  # pidfd_open(2), Linux 5.3
    except (OSError, AttributeError):  # an older kernel, a sandbox without the call, or the process was waited for
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, limit_s))
        return process.returncode is not None
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, limit_s) * 1e3)
    finally:
        os.close(descriptor)
    return process.poll() is not None


def kill_session(process: "subprocess.Popen[str]") -> str:
    """Kill a process that leads its session, and its children; returns the rest of its standard error."""
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
