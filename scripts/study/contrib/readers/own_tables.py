"""Points in tables with our own column names, and what is told of columns that are not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from study.contrib.readers import jobs
from study.contrib.readers.series_tables import COLUMNS, COUNTS, TEXTS, Where, build_series
from study.core.errors import StudyError
from study.core.foreign_csv import ForeignTable, explain_unclear_marks, read_foreign_csv
from study.prediction.points import Series

REMEDY = "correct the file"
MOST_NAMED = 8  # columns that are not read


def read_points(
    path: Path, work: str, ranks_per_node: int | None = None, unit: str | None = None, origin: str = "imported"
) -> list[Series]:
    """The series in a CSV file.

    Args:
        path: with the columns of `docs/prediction.md`, "Points from a CSV file".
        work: what scaling keeps fixed, one of `WORKS`.
        ranks_per_node: of the machine, where there is no column ``nodes``.
        unit: of the throughput, where there is no column ``unit``; with ``/GPU`` it is that of one rank.
        origin: of the points.

    Raises: `StudyError` with line and column for what is not as expected.
    """
    table = read_foreign_csv(path, REMEDY)
    names_in_file = _find_known_columns(table, path)
    if "ranks" not in names_in_file:
        raise StudyError(
            f"{path}: line {table.header}: there is no column 'ranks'; the file has {', '.join(table.frame)}; {REMEDY}"
        )
    frame = pd.DataFrame({ours: read_column(table, name, ours, path) for ours, name in names_in_file.items()})
    all_series = build_series(
        frame, path, work, ranks_per_node, unit, origin, Where(table.lines, table.header, names_in_file)
    )
    unread = table.frame[[name for name in table.frame if name not in names_in_file.values()]]
    keys = [frame["ranks"], *(frame[name].astype(str) for name in frame if name == "series")]
    notes = [*describe_not_read(unread), *_describe_differing(unread, keys)]
    return [replace(each, notes=[*each.notes, *notes]) for each in all_series]


def normalize_name(name: str) -> str:
    """The name of a column in lower case, with underscores."""
    return "_".join(name.lower().split())


def _find_known_columns(table: ForeignTable, path: Path) -> dict[str, str]:
    """{our name: the file's name} of the columns that are ours; raises `StudyError` if two of them are one."""
    names_in_file: dict[str, str] = {}
    for name in table.frame:
        ours = normalize_name(name)
        if ours in names_in_file:
            raise StudyError(
                f"{path}: line {table.header}: {names_in_file[ours]!r} and {name!r} are one column; keep one"
            )
        if ours in COLUMNS:
            names_in_file[ours] = name
    return names_in_file


def describe_not_read(names: Iterable[str]) -> Iterator[str]:
    """A sentence on the columns of a file that are not read; none without one."""
    if names := list(names):
        yield f"columns that are not read: {format_first_names(names)}"


def format_first_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _describe_differing(columns: pd.DataFrame, keys: list[pd.Series]) -> Iterator[str]:
    """A sentence on the columns that are not read in which rows that are alike in ``keys`` differ."""
    names = list(columns)
    texts = columns[[name for name in names if jobs.is_setting(columns[name])]].astype(str)
    if apart := jobs.list_differing_settings(texts, keys):
        yield (
            f"rows of the same ranks differ in {' and '.join(apart[:MOST_NAMED])}, and were averaged: if they are of "
            "several jobs, name these in a column series"
        )


def read_column(table: ForeignTable, name: str, ours: str, path: object) -> pd.Series:
    """A column of a file as `COLUMNS` has it; raises `StudyError` with the line of a cell that is not of its kind."""
    if ours in TEXTS:
        return table.frame[name]
    values = table.convert_column(name)
    whole = ours in COUNTS
    wrong = table.frame[name].notna().to_numpy() & ~np.isfinite(values)
    wrong |= whole & table.frame[name].astype(str).str.strip().str[-1:].str.isalpha().to_numpy()  # 1k: 1000 or 1024
    wrong |= whole & (np.mod(values, 1, where=np.isfinite(values), out=np.ones(len(values))) != 0)
    if wrong.any():
        place = int(wrong.argmax())
        cell = table.frame[name].iloc[place]
        cell_text = "an empty cell" if pd.isna(cell) else repr(str(cell)[:40])
        why = explain_unclear_marks(str(cell), table.decimal)
        raise StudyError(
            f"{path}: line {table.lines[place]}, column {name!r}: {cell_text} is not a "
            f"{'whole' if whole else 'finite'} number{why}; {REMEDY}"
        )
    return pd.Series(values, table.frame.index)
