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

from study.core.files import to_finite_or_none, write_aside

History = list[dict[str, Any]]  # of each epoch {column: value}; an epoch may lack a column


def write_history(path: Path, history: History, columns: Sequence[str] | None = None) -> None:
    """Write a history as CSV; missing values, None and NaN are empty cells.

    columns: to write, in order; by default all that an epoch has.
    """
    columns = list(dict.fromkeys(name for row in history for name in row)) if columns is None else columns
    with write_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as handle:
        table = csv.DictWriter(handle, columns, restval="", extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows({name: _to_cell(value) for name, value in row.items()} for row in history)


def list_values(history: Sequence[dict[str, Any]], column: str) -> list[float | None]:
    """The values of a column, one per epoch; None where it is missing or not finite."""
    return [to_finite_or_none(row.get(column)) for row in history]


def list_finite_values(history: Sequence[dict[str, Any]], column: str) -> list[float]:
    """The finite values of a column."""
    return [value for value in list_values(history, column) if value is not None]


def has_column(history: Sequence[dict[str, Any]], column: str) -> bool:
    """True if any epoch has the column."""
    return any(column in row for row in history)


def _to_cell(value: Any) -> Any:
    """A value as the cell of a CSV file: empty for None and NaN."""
    return "" if value is None or (isinstance(value, numbers.Real) and math.isnan(value)) else value
