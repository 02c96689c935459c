"""Passes of Snakemake, each a child process: a further one runs disturbed blocks again, planned from the results.

A Snakemake plans all of its jobs before the first one starts, so that a dry run is exact. Which runs are disturbed is
known only afterwards.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study.core import signals
from study.core.files import read_json, write_json
from study.training import process_tree

VARIABLE = "STUDY_ANOTHER_PASS"  # a file that a Snakemake makes to be started again
PLANNED = "planned.json"  # beside it: what a Snakemake planned
SIGNALLED = 128  # exit codes above it are of signals


@dataclass(frozen=True)
class PassesResult:
    """The exit code of the last Snakemake, and the configuration that it planned with; empty if it planned nothing."""

    code: int
    planned: Mapping[str, str] = field(default_factory=dict)


def run_snakemake(line: Sequence[str], is_shown: Callable[[str], bool] | None = None) -> int:
    """Run Snakemake; returns its exit code, or 128 plus the number of a terminating signal that this process got.

    Whichever it is, Snakemake gets SIGTERM: it starts no further job, and ends when those at work have. SIGINT and
    SIGHUP of a terminal reach it and its jobs besides. A second signal ends the jobs too. Where this process is killed,
    the kernel sends the SIGTERM.

    is_shown: whether a line that it prints is passed on, to standard error; by default all are, where they belong.
    """
    signals_received: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, _: Any) -> None:
        signals_received.append(number)
        if child is not None:
            _end_snakemake(child, signals_received)

    with signals.replace_handlers(hand_on):  # from before the start, so that no Snakemake is left behind
        child = subprocess.Popen(
            line,
            stdout=None if is_shown is None else subprocess.PIPE,
            stderr=None if is_shown is None else subprocess.STDOUT,
            preexec_fn=lambda: signals.die_with_parent(signal.SIGTERM),
        )
        if signals_received:
            _end_snakemake(child, signals_received)
        if is_shown is not None and child.stdout is not None:
            for text in child.stdout:
                if is_shown(text.decode(errors="replace").rstrip()):
                    sys.stderr.buffer.write(text)
                    sys.stderr.flush()
        code = child.wait()
    if signals_received:
        return SIGNALLED + signals_received[0]
    return code if code >= 0 else SIGNALLED - code


def _end_snakemake(child: "subprocess.Popen[bytes]", signals_received: Sequence[int]) -> None:
    """Pass a signal on: the first makes Snakemake end after the running jobs, a second ends the jobs too."""
    consequence = "Snakemake ends when the runs at work have ended; a second signal ends them now"
    child.send_signal(signal.SIGTERM)
    if len(signals_received) > 1:
        consequence = "the runs at work are ended"
        _end_jobs(child)
    with contextlib.suppress(OSError):  # of a terminal that is gone
        print(f"{signal.Signals(signals_received[-1]).name}: {consequence}", file=sys.stderr, flush=True)


def _end_jobs(snakemake: "subprocess.Popen[bytes]") -> None:
    """End Snakemake's jobs: those of this host by SIGTERM, batch jobs by Snakemake, which cancels them at SIGINT.

    What is in a session of its own, such as the ranks, is ended by the process that has started it.
    """
    for process in process_tree.list_descendants(snakemake.pid):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process) == os.getsid(0):
                os.kill(process, signal.SIGTERM)
    snakemake.send_signal(signal.SIGINT)


def run_passes(
    line: Sequence[str], start: Callable[[Sequence[str]], int] = run_snakemake, most_passes: int | None = None
) -> PassesResult:
    """Start Snakemake, and again as often as it requests another pass.

    It requests one only after it started runs, and each run has a limited number of attempts, so this ends.

    Args:
        line: the command.
        start: runs it and returns its exit code.
        most_passes: how often it is started at most.
    """
    repetitions = 0
    with tempfile.TemporaryDirectory() as folder:
        request_file, planned = Path(folder) / "again", Path(folder) / PLANNED
        os.environ[VARIABLE] = str(request_file)
        try:
            while (
                (code := start(line)) == 0 and request_file.exists() and (repetitions := repetitions + 1) != most_passes
            ):
                request_file.unlink()
        finally:
            del os.environ[VARIABLE]
        return PassesResult(code, read_json(planned) if planned.exists() else {})


def note_planned(**plan: str) -> None:
    """Write what this Snakemake plans, such as its machine, for the process that started it."""
    if (path := os.environ.get(VARIABLE)) and Path(path).parent.is_dir():
        write_json(Path(path).with_name(PLANNED), plan)


def is_another_pass_possible() -> bool:
    """True if the process that started this Snakemake would start it again."""
    path = os.environ.get(VARIABLE, "")
    return bool(path) and Path(path).parent.is_dir()


def request_another_pass() -> bool:
    """Request another pass from the process that started this Snakemake; False if that does not listen."""
    path = os.environ.get(VARIABLE)
    if path and Path(path).parent.is_dir():
        Path(path).touch()
    return bool(path)
