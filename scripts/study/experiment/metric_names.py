"""The names of a benchmark's metrics: their own, and none of ours.

A metric is a column of ``history.csv`` and of ``runs.csv``, there also with a prefix for validation and test. So its
name must not be that of a grid key, or of another column.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from study.core import fields, units
from study.core.errors import StudyError
from study.experiment.parameters import PARAMETERS

PREFIXES = ("val_", "validation_", "test_")
# Columns that are metrics: of the shipped benchmarks, and of the loss.
OURS = {each.name for each in fields.section("quality").fields if not each.name.startswith(PREFIXES)}
FILES = (fields.OF_RUNS, fields.OF_EPOCHS, fields.OF_MEMBERS)  # in which metrics are columns


@functools.cache
def taken() -> frozenset[str]:
    """All names of columns and grid keys, in lower case, but those of our own metrics."""
    columns = {name.lower() for files in FILES for name in fields.columns(files)}
    return frozenset({*PARAMETERS, *columns} - of_quality())


def of_quality() -> set[str]:
    """The columns of our own metrics, with those of validation and test."""
    return {f"{prefix}{name}" for name in OURS for prefix in ("", *PREFIXES)}


def check_different(names: list[str], where: str) -> None:
    """Raise `StudyError` if two names are one, or differ in their case only: columns of a database would be one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise StudyError(f"{where}: metrics: {other!r} and {name!r} differ in their case only; rename one")
        if names.count(name) > 1:
            raise StudyError(f"{where}: metrics: two are named {name!r}; give each a name of its own")


def check(names: Iterable[str], where: str = "the model's metrics") -> None:
    """Raise `StudyError` if a metric has the name of a grid key or of another column, or one that looks like it.

    names: may repeat.
    """
    names = list(dict.fromkeys(names))
    check_different(names, where)
    for name in names:
        if why := refusal(name):
            raise StudyError(
                f"{where}: metrics: {name!r} {why}; give the metric another name, such as name='{_other(name)}'"
            )


def refusal(name: str) -> str | None:
    """Why a metric may not have a name; None if it may."""
    if name.lower() in OURS:
        return None if name in OURS else f"differs from our {name.lower()!r} in its case only"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        return "is no name of a column (letters, digits and underscores)"
    if name.lower().startswith(PREFIXES):
        return f"begins as a column of validation or test does ({', '.join(PREFIXES)})"
    if any(column in taken() for column in (name.lower(), *(f"{prefix}{name}".lower() for prefix in PREFIXES))):
        return "is a grid key or a column of this project"
    if _looks_like_ours(name):
        return "is built like the name of a measured column"
    return None


def _looks_like_ours(name: str) -> bool:
    known = units.of_column(name) is not None
    return known or any(re.search(pattern, name) and name not in of_quality() for pattern in fields.patterns())


def _other(name: str) -> str:
    stem = re.sub(r"\W+", "_", name).strip("_").lower() or "own"
    for other in (f"{stem}_metric", "own_metric"):
        if refusal(other) is None:
            return other
    return "own_metric"
