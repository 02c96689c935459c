"""Columns of a CSV file without pandas, whose import takes longer than most files of a run.

A file in which each value is plainly of its column's kind is read here. Every other one is read by
`study.core.csv_files.read_csv`, which reads or refuses it. So both give the same values and the same messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core.csv_files import FINITE, NAME, NUMBER, REMEDY, TEXT, WHOLE, parse_checked_rows, read_csv, read_csv_text
from study.core.files import AnyPath

MOST_CHARACTERS = 2_000_000  # of a longer file, pandas reads so much faster that its import is worth it
INTEGER = re.compile(r"-?[0-9]{1,19}")  # a time in ns since 1970 has 19 digits; not all of these fit int64
INT64 = 2**63
DECIMAL = re.compile(rf"{INTEGER.pattern}|-?[0-9]+([.][0-9]+([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)")
READ_HERE = (NUMBER, FINITE, WHOLE, TEXT, NAME)


@dataclass(frozen=True)
class Columns:
    """The columns of a file that have a kind, by name: int64, float64 with NaN, or object with texts and None."""

    rows: int
    values: Mapping[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)


def read_columns(
    path: AnyPath,
    kinds: Mapping[str, str],
    others: Callable[[str], str | None] = lambda _: None,
    remedy: str = REMEDY,
) -> Columns:
    """Columns of a CSV file as NumPy arrays, equal to those of `study.core.csv_files.read_csv`.

    Args:
        path: the file.
        kinds: {column: a kind} of columns that must be there.
        others: the kind of a column that need not be there; None for one that is left out.
        remedy: what to do about a file that is refused.

    Raises:
        StudyError: as `read_csv`.
    """
    columns = _read_plain_columns(path, kinds, others)
    if columns is not None:
        return columns
    frame = read_csv(path, kinds, others, remedy)
    kind_by_name = {str(name): kind for name in frame if (kind := kinds.get(str(name)) or others(str(name)))}
    return Columns(len(frame), {name: _convert_series(frame[name], kind) for name, kind in kind_by_name.items()})


def _read_plain_columns(path: AnyPath, kinds: Mapping[str, str], others: Callable[[str], str | None]) -> Columns | None:
    """The columns, read without pandas; None if only pandas can read the file, or it must be refused."""
    try:
        text = read_csv_text(Path(path))
        if len(text) > MOST_CHARACTERS:
            return None
        names, *rows = parse_checked_rows(text)
    except (OSError, ValueError):
        return None
    kind_by_name = {name: kind for name in names if (kind := kinds.get(name) or others(name))}
    if not kind_by_name.keys() >= kinds.keys():
        return None
    by_name = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
    values = {name: _convert_plain_cells(by_name[name], kind) for name, kind in kind_by_name.items()}
    complete = {name: each for name, each in values.items() if each is not None}
    return Columns(len(rows), complete) if len(complete) == len(values) else None


def _convert_plain_cells(cells: Sequence[str], kind: str) -> NDArray[Any] | None:
    """A column's cells as an array, integers alone as int64 like pandas; None if one is not plainly of its kind."""
    if kind not in READ_HERE:
        return None
    if kind in (TEXT, NAME):
        return None if kind == NAME and "" in cells else np.array([cell or None for cell in cells], dtype=object)
    if all(map(INTEGER.fullmatch, cells)):
        integers = list(map(int, cells))
        return np.array(integers, dtype=np.int64) if all(abs(each) < INT64 for each in integers) else None
    if kind == WHOLE or not all(not cell or DECIMAL.fullmatch(cell) for cell in cells):
        return None
    values = np.array([float(cell) if cell else np.nan for cell in cells], dtype=np.float64)
    return None if np.isinf(values).any() else values


def _convert_series(column: Any, kind: str) -> NDArray[Any]:
    """A pandas column as an array of the types of `Columns`."""
    if kind in (TEXT, NAME):
        return np.array([None if isinstance(each, float) else each for each in column], dtype=object)
    return np.asarray(column.to_numpy())
