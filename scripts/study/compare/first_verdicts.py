"""The runs of the first verdicts of a study: repeats that are added after a verdict was seen do not change it.

Findings, checks, tables with verdicts and `make tune` note them, each in a file of its own.

Whoever adds repeats until a verdict suits finds differences that are none: in 24 % instead of 5 % of the studies, with
looks at 3 to 20 blocks. So a verdict is that of the runs with which it was first given, as long as these exist. Runs
that are trained again are new runs, and give a new verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pandas as pd

from study.core import validation
from study.core.files import write_json
from study.experiment import identity, schemas
from study.experiment.parameters import PARAMETERS

FOLDER = "first_verdicts"  # in a study's results
FirstVerdicts = Mapping[str, list[str]]  # what has a verdict -> the digests of its runs
Key = TypeVar("Key")
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
    verdicts: dict[str, list[str]] = validation.load_valid_json(path, SCHEMA) if path.exists() else {}
    return verdicts


def write(folder: Path, of: str, verdicts: FirstVerdicts) -> None:
    """Write them, whole or not at all."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    write_json(folder / FOLDER / f"{of}.json", dict(verdicts))


def compute_digest(run: pd.Series) -> str:
    """A digest of a run, the same in each later look. run: a row of the tidy table of runs."""
    return identity.compute_fingerprint({"record": run["record"], "started": int(run["started_wall_ns"])})[:DIGITS]


def drop_later_runs(runs: pd.DataFrame, earlier: FirstVerdicts) -> tuple[pd.DataFrame, int]:
    """The runs without those that were added to a point after it had a verdict, and how many these are.

    runs: rows of the tidy table. earlier: of `add_verdicts`.
    """
    if runs.empty or not earlier:
        return runs, 0
    late = pd.Series(False, index=runs.index)
    for point, rows in _group_points(runs):
        late[find_later_runs(earlier.get(point), dict(rows.apply(compute_digest, axis=1)))] = True
    return runs[~late], int(late.sum())


def add_verdicts(runs: pd.DataFrame, records: Collection[str], earlier: FirstVerdicts) -> dict[str, list[str]]:
    """The first verdicts of points, after those that were made of ``records``: {point: digests of its runs}."""
    judged = runs[runs["record"].isin(set(records))] if len(runs) else runs
    return {**earlier, **{point: list(rows.apply(compute_digest, axis=1)) for point, rows in _group_points(judged)}}


def _group_points(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(digest of a point's keys, its repeats). Keys with their defaults do not count: a verdict outlives a new key."""
    keys = [name for name in ("machine", *schemas.list_separating_keys()) if name in runs]
    for values, rows in runs.groupby(keys, dropna=False, sort=False) if len(runs) else ():
        named = zip(keys, map(str, values), strict=True)
        own = {name: value for name, value in named if not _is_default(name, value)}
        yield identity.compute_fingerprint(own)[:DIGITS], rows


def _is_default(name: str, value: str) -> bool:
    """Whether a value is the key's default. value: as a text, of a number perhaps ``0.0`` for 0."""
    if name not in PARAMETERS or not PARAMETERS[name].has_default:
        return False
    default = PARAMETERS[name].default
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    return value in (str(default), *([str(float(default))] if is_number else []))


def find_later_runs(first: Collection[str] | None, digests: Mapping[Key, str]) -> list[Key]:
    """The runs that were added after an earlier verdict; none without one, or if some of its runs are gone.

    first: digests of the runs of that verdict. digests: of the present runs, by what names them.
    """
    if not first or not set(first) < set(digests.values()):
        return []
    return [run for run, digest in digests.items() if digest not in set(first)]
