"""Names of a benchmark's metrics, which must differ from grid keys and this project's columns.

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
OURS = {each.name for each in fields.find_section("quality").fields if not each.name.startswith(PREFIXES)}
FILES = (fields.RUN_FILES, fields.EPOCH_FILES, fields.MEMBER_FILES)  # in which metrics are columns


@functools.cache
def list_taken_names() -> frozenset[str]:
    """The names that a metric may not have: columns and grid keys, in lower case, but those of our own metrics."""
    columns = {name.lower() for files in FILES for name in fields.list_columns(files)}
    return frozenset({*PARAMETERS, *columns} - list_quality_columns())


def list_quality_columns() -> set[str]:
    """The columns of the shipped benchmarks' metrics and of the loss, with those of validation and test."""
    return {f"{prefix}{name}" for name in OURS for prefix in ("", *PREFIXES)}


def check_pattern_names(names: Iterable[str], where: str) -> None:
    """Raise `StudyError` if a number in a program's output has the name of a grid key or of another column.

    It may be one of the validation or test set (validation_loss), and end with its unit (tokens_per_s).
    """
    names = list(names)
    check_distinct(names, where)
    for name in names:
        why = explain_refusal(re.sub("^(validation|test)_", "", name), may_have_unit=True)
        if why:
            raise StudyError(f"{where}: metrics: {name!r} {why}; give it another name, such as {_suggest_name(name)}")


def check_distinct(names: list[str], where: str) -> None:
    """Raise `StudyError` if two names are equal, or differ in their case only, as columns of a database may not."""
    first_spellings: dict[str, str] = {}
    for name in names:
        other = first_spellings.setdefault(name.lower(), name)
        if other != name:
            raise StudyError(f"{where}: metrics: {other!r} and {name!r} differ in their case only; rename one")
        if names.count(name) > 1:
            raise StudyError(f"{where}: metrics: two are named {name!r}; give each a name of its own")


def check_metric_names(names: Iterable[str], where: str = "the model's metrics") -> None:
    """Raise `StudyError` if a metric has the name of a grid key or of a column, or one that looks like a column's.

    names: may repeat.
    """
    names = list(dict.fromkeys(names))
    check_distinct(names, where)
    for name in names:
        if why := explain_refusal(name):
            raise StudyError(
                f"{where}: metrics: {name!r} {why}; give the metric another name, such as name='{_suggest_name(name)}'"
            )


def explain_refusal(name: str, may_have_unit: bool = False) -> str | None:
    """The reason why a metric may not have a name; None if it may. may_have_unit: whether it may end with its unit."""
    if name.lower() in OURS:
        return None if name in OURS else f"differs from our {name.lower()!r} in its case only"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        return "is no name of a column (letters, digits and underscores)"
    if name.lower().startswith(PREFIXES):
        return f"begins as a column of validation or test does ({', '.join(PREFIXES)})"
    if not list_taken_names().isdisjoint(f"{prefix}{name}".lower() for prefix in ("", *PREFIXES)):
        return "is a grid key or a column of this project"
    if _is_like_column(name, may_have_unit):
        return "is built like the name of a measured column"
    return None


def _is_like_column(name: str, may_have_unit: bool) -> bool:
    """Whether a name is built like that of a measured column, such as by its unit. may_have_unit: see above."""
    is_quality = name in list_quality_columns()
    matches = (re.search(pattern, name) for pattern in fields.list_column_patterns())
    has_unit = units.find_unit(name) is not None and not may_have_unit
    return has_unit or (not is_quality and any(matches))


def _suggest_name(name: str) -> str:
    """A name that a metric may have, made from one that it may not have."""
    stem = re.sub(r"\W+", "_", name).strip("_").lower() or "own"
    for suggestion in (f"{stem}_metric", "own_metric"):
        if explain_refusal(suggestion) is None:
            return suggestion
    return "own_metric"
