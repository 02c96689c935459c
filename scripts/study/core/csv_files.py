"""CSV files that the study wrote or that are part of it: read as they stand, or refused with line and column.

pandas alone fills short lines, takes the first values of long ones as an index, renames a second column of a name,
and reads words such as NA as missing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

import numpy as np

from study.core.errors import StudyError
from study.core.files import AnyPath
from study.core.lazy import pandas as pd

# Kinds of columns. Only those of `WHOLE` and `NAME` have a value in each row; a `NUMBER` may be infinite.
NUMBER, FINITE, WHOLE, TEXT, NAME = "a number", "a finite number", "a whole number", "a text", "a name"
FLAG = "True or False"
REMEDY = "restore it, or delete it to have it made again"
LONGEST_CELL = 10**6  # characters


def read_csv(
    path: AnyPath | TextIO,
    kinds: Mapping[str, str] | None = None,
    others: Callable[[str], str | None] = lambda _: None,
    remedy: str = REMEDY,
    may_be_empty: bool = False,
) -> pd.DataFrame:
    """The table of a CSV file as a data frame; empty cells are missing, numbers are rounded correctly.

    Args:
        path: the file, or its open text.
        kinds: {column: one of the kinds above} of columns that must be there.
        others: the kind of a column that need not be there; None to infer its type.
        remedy: what to do about a file that is refused.
        may_be_empty: whether a file without rows, with a header or none, is a table without columns.

    Raises:
        StudyError: the file cannot be read, is empty, has lines of different lengths or two columns of one name, lacks
            a column of ``kinds``, or has a value that is not of its column's kind.
    """
    try:
        text = path.read() if isinstance(path, io.TextIOBase) else read_csv_text(Path(str(path)))
        if may_be_empty and len(text.strip().splitlines()) < 2:
            return pd.DataFrame()
        names = _read_names(text)
        missing = [name for name in kinds or {} if name not in names]
        if missing:
            raise ValueError(f"line 1: there is no column {missing[0]!r}; the file has {', '.join(names)}")
        kind_by_name = {name: kind for name in names if (kind := (kinds or {}).get(name) or others(name))}
        texts = {name: str for name, kind in kind_by_name.items() if kind in (TEXT, NAME)}
        frame = pd.read_csv(io.StringIO(text), dtype=texts, low_memory=False, float_precision="round_trip",
                            keep_default_na=False, na_values=[""], skip_blank_lines=False)  # fmt: skip
        for name, kind in kind_by_name.items():
            _check_kind(frame[name], kind, text)
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, OverflowError) as error:  # also pandas' own, and text that is not UTF-8
        raise StudyError(f"{path}: {error}; {remedy}") from None
    return frame


def read_rows(path: AnyPath, names: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a CSV file that has at least the columns ``names``, {column: text}; raises `StudyError`."""
    frame = read_csv(path, dict.fromkeys(names, TEXT), others=lambda _: TEXT)
    return frame.fillna("").to_dict("records")


def stack_tables(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """One table with the rows of all tables and the columns of any; without columns if there are none.

    A column without a value in one of them has the type of its values in the others.
    """
    tables = list(frames)
    columns = list(dict.fromkeys(name for frame in tables for name in frame))
    with_values = [filled for frame in tables if len(filled := frame.dropna(axis="columns", how="all"))]
    return (pd.concat(with_values, ignore_index=True) if with_values else pd.DataFrame()).reindex(columns=columns)


def read_csv_text(path: Path) -> str:
    """The text of a file with its line ends unchanged."""
    with open(path, encoding="utf-8", newline="") as handle:
        return handle.read()


def _read_names(text: str) -> list[str]:
    """The names of the columns, after all rows are checked as by `parse_checked_rows`."""
    names: list[str] = []
    for row in parse_checked_rows(text):
        names = names or row
    return names


def parse_checked_rows(text: str) -> Iterator[list[str]]:
    """Yield the column names, then each row; raises ValueError for what pandas would read differently."""
    if "\0" in text:
        raise ValueError(f"line {text[: text.index(chr(0))].count(chr(10)) + 1}: there is a zero byte")
    names: list[str] | None = None
    for number, row in parse_rows(text):
        if names is None:
            names = row
            check_column_names(names)
        elif len(row) != len(names):
            raise ValueError(f"line {number}: {len(row)} values, but line 1 has {len(names)}")
        yield row
    if not names:
        raise ValueError("the file is empty")


def parse_rows(text: str, delimiter: str = ",") -> Iterable[tuple[int, list[str]]]:
    """Yield (line, cells) of each row; raises ValueError with the line if the text is not CSV."""
    longest = csv.field_size_limit(LONGEST_CELL)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num}: {error}") from None
    finally:
        csv.field_size_limit(longest)


def check_column_names(names: list[str], line: int = 1) -> None:
    """Raise ValueError if a column name is empty or not unique. line: where the names stand."""
    if not names:
        raise ValueError(f"line {line}: the line is empty; names of columns are expected")
    earlier_names: set[str] = set()
    for column, name in enumerate(names, 1):
        if not name.strip() or name.startswith("\ufeff"):
            raise ValueError(f"line {line}: column {column} has no plain name: {name!r}")
        if name in earlier_names:
            raise ValueError(f"line {line}: there are two columns {name!r}")
        earlier_names.add(name)


def _check_kind(column: pd.Series, kind: str, text: str) -> None:
    """Raise ValueError for the first value of a column that is not of its kind."""
    if kind == TEXT or _has_number_type(column, kind):
        return
    wrong = _find_wrong_values(column, kind)
    if not wrong.any():
        return
    place = int(wrong.to_numpy().argmax())
    line = next(line for index, (line, _) in enumerate(parse_rows(text)) if index == place + 1)
    raise ValueError(f"line {line}, column {column.name!r}: {str(column.iloc[place])[:40]!r} is not {kind}")


def _has_number_type(column: pd.Series, kind: str) -> bool:
    """True if a column's type alone shows that all values are of a kind of number, without looking at each."""
    type_kind = getattr(column.dtype, "kind", "")
    if kind == FINITE and type_kind == "f":
        return not np.isinf(column.to_numpy()).any()
    return type_kind in {NUMBER: "iuf", FINITE: "iu", WHOLE: "i"}.get(kind, "")


def _find_wrong_values(column: pd.Series, kind: str) -> pd.Series:
    """Mask of a column's values that are not of a kind."""
    if kind == NAME:
        return column.isna()
    if kind == FLAG:
        return column.notna() & ~column.astype(str).isin(("True", "False"))
    if _has_type(column, "bool"):
        return column.notna()
    if kind == FINITE and _has_type(column, "numeric"):
        return np.isinf(column)
    numbers = column if _has_type(column, "numeric") else pd.to_numeric(column.astype(str), errors="coerce")
    wrong = numbers.isna() & column.notna()
    if kind == FINITE:
        wrong |= np.isinf(numbers.astype(float))
    if kind == WHOLE:
        wrong = numbers.isna() | (numbers % 1 != 0)
    has_type = _has_type(column, "signed_integer") if kind == WHOLE else _has_type(column, "numeric")
    return wrong if has_type or wrong.any() else column.notna()  # numbers that no type of numpy holds


def _has_type(column: pd.Series, what: str) -> bool:
    """True if a column has a type of pandas, such as ``numeric``."""
    return bool(getattr(pd.api.types, f"is_{what}_dtype")(column))
