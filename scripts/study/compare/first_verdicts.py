"""The runs of the first verdicts of a study: repeats that are added after a verdict was seen do not change it.

Findings, checks, tables with verdicts and `make tune` note them, each in a file of its own.

Whoever adds repeats until a verdict suits finds differences that are none: in 24 % instead of 5 % of the studies, with
looks at 3 to 20 blocks. So a verdict is that of the runs with which it was first given, as long as these exist. Runs
that are trained again are new runs, and give a new verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pandas as pd

from study.core import checked
from study.core.files import write_json
from study.experiment import identity, schemas
from study.experiment.parameters import PARAMETERS

FOLDER = "first_verdicts"  # in a study's results
FirstVerdicts = Mapping[str, list[str]]  # what has a verdict -> the digests of its runs
DIGITS = 12  # of a run's digest
SCHEMA = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "string"}},
}


def read(folder: Path, of: str) -> dict[str, list[str]]:
    """The first verdicts of findings or of checks; none without a file. folder: of the study's results.

    Raises `StudyError` for a damaged file: without it, a verdict of more runs would count as the first one.
    """
    path = folder / FOLDER / f"{of}.json"
    found: dict[str, list[str]] = checked.load_json(path, SCHEMA) if path.exists() else {}
    return found


def write(folder: Path, of: str, verdicts: FirstVerdicts) -> None:
    """Write them, whole or not at all."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    write_json(folder / FOLDER / f"{of}.json", dict(verdicts))


def compute_digest(run: pd.Series) -> str:
    """Equal for the same run, also in a later look. run: a row of the tidy table of runs."""
    return identity.fingerprint({"record": run["record"], "started": int(run["started_wall_ns"])})[:DIGITS]


def drop_later_runs(runs: pd.DataFrame, earlier: FirstVerdicts) -> tuple[pd.DataFrame, int]:
    """The runs without those that were added to a point after it had a verdict, and how many these are.

    runs: rows of the tidy table. earlier: of `add_verdicts`.
    """
    if runs.empty or not earlier:
        return runs, 0
    late = pd.Series(False, index=runs.index)
    for point, rows in _points(runs):
        digests = rows.apply(compute_digest, axis=1)
        if is_standing(first := earlier.get(point), list(digests)):
            late[rows.index] = ~digests.isin(set(first or ()))
    return runs[~late], int(late.sum())


def add_verdicts(runs: pd.DataFrame, records: Collection[str], earlier: FirstVerdicts) -> dict[str, list[str]]:
    """The first verdicts of points, after those that were made of ``records``: {point: digests of its runs}."""
    judged = runs[runs["record"].isin(set(records))] if len(runs) else runs
    return {**earlier, **{point: list(rows.apply(compute_digest, axis=1)) for point, rows in _points(judged)}}


def _points(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(digest of a point's keys, its repeats). Keys with their defaults do not count: a verdict outlives a new key."""
    keys = [name for name in ("machine", *schemas.separating()) if name in runs]
    for values, rows in runs.groupby(keys, dropna=False, sort=False) if len(runs) else ():
        named = zip(keys, map(str, values), strict=True)
        own = {name: value for name, value in named if not _is_default(name, value)}
        yield identity.fingerprint(own)[:DIGITS], rows


def _is_default(name: str, value: str) -> bool:
    """value: as a text, of a number perhaps ``0.0`` for 0."""
    if name not in PARAMETERS or not PARAMETERS[name].has_default:
        return False
    default = PARAMETERS[name].default
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    return value in (str(default), *([str(float(default))] if is_number else []))


def is_standing(first: list[str] | None, now: list[str]) -> bool:
    """Whether an earlier verdict stands: all its runs are there, and others beside them."""
    return bool(first) and set(first or ()) < set(now)
