"""One Snakemake after another: blocks that were disturbed are run again by a further one, planned from the results.

A Snakemake plans all of its jobs before the first one starts, so that a dry run is exact. Which runs are disturbed is
known only afterwards.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

VARIABLE = "STUDY_ANOTHER_PASS"  # a file that a Snakemake makes to be started again


def all_of(line: Sequence[str], start: Callable[[Sequence[str]], int]) -> int:
    """Start Snakemake, and again as often as it asks for; returns the exit code of the last one.

    It asks only after it started runs, and each run has a limited number of attempts, so this ends. line: the command.
    start: runs it and returns its exit code.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "again"
        os.environ[VARIABLE] = str(asked)
        try:
            while (code := start(line)) == 0 and asked.exists():
                asked.unlink()
        finally:
            del os.environ[VARIABLE]
    return code


def ask_for_another() -> bool:
    """Ask whoever started this Snakemake to start it again; False if nobody would."""
    path = os.environ.get(VARIABLE)
    if path and Path(path).parent.is_dir():
        Path(path).touch()
    return bool(path)
