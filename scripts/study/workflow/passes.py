"""Snakemake as a child, one after another: disturbed blocks are run again by a further one, planned from the results.

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
class Ended:
    """The exit code of the last Snakemake, and the configuration that it planned with; empty if it planned nothing."""

    code: int
    planned: Mapping[str, str] = field(default_factory=dict)


def run_snakemake(line: Sequence[str]) -> int:
    """Snakemake's exit code; 128 plus the signal's number if this process got a signal that ends programs.

    Whichever it is, Snakemake gets SIGTERM: it starts no further job, and ends when those at work have. SIGINT and
    SIGHUP of a terminal reach it and its jobs besides. A second signal ends the jobs too. Where this process is killed,
    the kernel sends the SIGTERM.
    """
    came: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, _: Any) -> None:
        came.append(number)
        if child is not None:
            _hand_on(child, came)

    with signals.handled(hand_on):  # from before the start, so that no Snakemake is left behind
        child = subprocess.Popen(line, preexec_fn=lambda: signals.die_with_parent(signal.SIGTERM))
        if came:
            _hand_on(child, came)
        code = child.wait()
    if came:
        return SIGNALLED + came[0]
    return code if code >= 0 else SIGNALLED - code


def _hand_on(child: "subprocess.Popen[bytes]", came: Sequence[int]) -> None:
    """Have Snakemake end. came: the signals until now."""
    says = "Snakemake ends when the runs at work have ended; a second signal ends them now"
    child.send_signal(signal.SIGTERM)
    if len(came) > 1:
        says = "the runs at work are ended"
        _end_jobs(child)
    with contextlib.suppress(OSError):  # of a terminal that is gone
        print(f"{signal.Signals(came[-1]).name}: {says}", file=sys.stderr, flush=True)


def _end_jobs(snakemake: "subprocess.Popen[bytes]") -> None:
    """End Snakemake's jobs: those of this host by SIGTERM, batch jobs by Snakemake, which cancels them at SIGINT.

    What is in a session of its own, such as the ranks, is ended by the process that has started it.
    """
    for process in process_tree.below(snakemake.pid):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process) == os.getsid(0):
                os.kill(process, signal.SIGTERM)
    snakemake.send_signal(signal.SIGINT)


def all_of(
    line: Sequence[str], start: Callable[[Sequence[str]], int] = run_snakemake, most: int | None = None
) -> Ended:
    """Start Snakemake, and again as often as it asks for.

    It asks only after it started runs, and each run has a limited number of attempts, so this ends.

    Args:
        line: the command.
        start: runs it and returns its exit code.
        most: how often it is started at most.
    """
    times = 0
    with tempfile.TemporaryDirectory() as folder:
        asked, planned = Path(folder) / "again", Path(folder) / PLANNED
        os.environ[VARIABLE] = str(asked)
        try:
            while (code := start(line)) == 0 and asked.exists() and (times := times + 1) != most:
                asked.unlink()
        finally:
            del os.environ[VARIABLE]
        return Ended(code, read_json(planned) if planned.exists() else {})


def note_planned(**of: str) -> None:
    """Tell whoever started this Snakemake what it plans, such as its machine, which a profile may have chosen."""
    if (path := os.environ.get(VARIABLE)) and Path(path).parent.is_dir():
        write_json(Path(path).with_name(PLANNED), of)


def ask_for_another() -> bool:
    """Ask whoever started this Snakemake to start it again; False if nobody would."""
    path = os.environ.get(VARIABLE)
    if path and Path(path).parent.is_dir():
        Path(path).touch()
    return bool(path)
