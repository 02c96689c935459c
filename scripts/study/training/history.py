"""The history of a rank's training: one row per epoch, with the columns of ``history.csv``.

Plain rows and no data frame: a rank that reads a converted file then starts without pandas.
"""

from __future__ import annotations

import csv
import math
import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from study.core.files import number_or_none, written_aside

History = list[dict[str, Any]]  # of each epoch {column: value}; an epoch may lack a column


def write(path: Path, history: History, columns: Sequence[str] | None = None) -> None:
    """Write the rows as CSV; what an epoch lacks, None and NaN are empty cells.

    columns: that are written, in order; by default all that an epoch has.
    """
    columns = list(dict.fromkeys(name for row in history for name in row)) if columns is None else columns
    with written_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as handle:
        table = csv.DictWriter(handle, columns, restval="", extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows({name: _cell(value) for name, value in row.items()} for row in history)


def values(history: Sequence[dict[str, Any]], column: str) -> list[float | None]:
    """A column's values, one per epoch; None where an epoch lacks it, and for one that is not finite."""
    return [number_or_none(row.get(column)) for row in history]


def known(history: Sequence[dict[str, Any]], column: str) -> list[float]:
    """The finite values of a column."""
    return [value for value in values(history, column) if value is not None]


def has(history: Sequence[dict[str, Any]], column: str) -> bool:
    """Whether an epoch has the column."""
    return any(column in row for row in history)


def _cell(value: Any) -> Any:
    return "" if value is None or (isinstance(value, numbers.Real) and math.isnan(value)) else value
