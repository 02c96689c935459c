"""The runs of the first verdicts of a study: repeats that are added after a verdict was seen do not change it.

Whoever adds repeats until a verdict suits finds differences that are none: in 24 % instead of 5 % of the studies, with
looks at 3 to 20 blocks. So a verdict is that of the runs with which it was first given, as long as these exist. Runs
that are trained again are new runs, and give a new verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from study.core import checked
from study.core.files import write_json
from study.experiment import identity

FOLDER = "first_verdicts"  # in a study's results
Looks = Mapping[str, list[str]]  # what has a verdict -> the digests of its runs
DIGITS = 12  # of a run's digest
SCHEMA = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}  # of `Looks`


def read(folder: Path, of: str) -> dict[str, list[str]]:
    """The looks of findings or of checks; none without a file. folder: of the study's results.

    Raises `StudyError` for a damaged file: without it, a verdict of more runs would count as the first one.
    """
    path = folder / FOLDER / f"{of}.json"
    found: dict[str, list[str]] = checked.load_json(path, SCHEMA) if path.exists() else {}
    return found


def write(folder: Path, of: str, looks: Looks) -> None:
    """Write them, whole or not at all."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    write_json(folder / FOLDER / f"{of}.json", dict(looks))


def digest(run: pd.Series) -> str:
    """Equal for the same run, also in a later look. run: a row of the tidy table of runs."""
    return identity.fingerprint({"record": run["record"], "started": int(run["started_wall_ns"])})[:DIGITS]


def stands(first: list[str] | None, now: list[str]) -> bool:
    """Whether an earlier verdict stands: all its runs are there, and others beside them."""
    return bool(first) and set(first or ()) < set(now)
