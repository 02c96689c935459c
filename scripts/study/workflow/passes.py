"""One Snakemake after another: blocks that were disturbed are run again by a further one, planned from the results.

A Snakemake plans all of its jobs before the first one starts, so that a dry run is exact. Which runs are disturbed is
known only afterwards.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from study.core.files import read_json, write_json

VARIABLE = "STUDY_ANOTHER_PASS"  # a file that a Snakemake makes to be started again
PLANNED = "planned.json"  # beside it: what a Snakemake planned


@dataclass(frozen=True)
class Ended:
    """The exit code of the last Snakemake, and the configuration that it planned with; empty if it planned nothing."""

    code: int
    planned: Mapping[str, str] = field(default_factory=dict)


def all_of(line: Sequence[str], start: Callable[[Sequence[str]], int], most: int | None = None) -> Ended:
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
