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
    """The table in a CSV file as a data frame; empty cells are missing, and numbers are the nearest ones.

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
        text = path.read() if isinstance(path, io.TextIOBase) else text_of(Path(str(path)))
        if may_be_empty and len(text.strip().splitlines()) < 2:
            return pd.DataFrame()
        names = _checked_names(text)
        missing = [name for name in kinds or {} if name not in names]
        if missing:
            raise ValueError(f"line 1: there is no column {missing[0]!r}; the file has {', '.join(names)}")
        of = {name: kind for name in names if (kind := (kinds or {}).get(name) or others(name))}
        texts = {name: str for name, kind in of.items() if kind in (TEXT, NAME)}
        frame = pd.read_csv(io.StringIO(text), dtype=texts, low_memory=False, float_precision="round_trip",
                            keep_default_na=False, na_values=[""], skip_blank_lines=False)  # fmt: skip
        for name, kind in of.items():
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


def stacked(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Tables from several files below one another, with the columns of all; a table without columns if there are none.

    A column without a value in one of them has the type of its values in the others.
    """
    given = list(frames)
    columns = list(dict.fromkeys(name for frame in given for name in frame))
    with_values = [known for frame in given if len(known := frame.dropna(axis="columns", how="all"))]
    return (pd.concat(with_values, ignore_index=True) if with_values else pd.DataFrame()).reindex(columns=columns)


def text_of(path: Path) -> str:
    """The file's text; its line ends are kept."""
    with open(path, encoding="utf-8", newline="") as handle:
        return handle.read()


def _checked_names(text: str) -> list[str]:
    """The names of the columns; raises as `checked_rows`."""
    names: list[str] = []
    for row in checked_rows(text):
        names = names or row
    return names


def checked_rows(text: str) -> Iterator[list[str]]:
    """The names of the columns, then each row; raises ValueError for what pandas would read in another way."""
    if "\0" in text:
        raise ValueError(f"line {text[: text.index(chr(0))].count(chr(10)) + 1}: there is a zero byte")
    names: list[str] | None = None
    for number, row in rows_of(text):
        if names is None:
            names = row
            check_names(names)
        elif len(row) != len(names):
            raise ValueError(f"line {number}: {len(row)} values, but line 1 has {len(names)}")
        yield row
    if not names:
        raise ValueError("the file is empty")


def rows_of(text: str, delimiter: str = ",") -> Iterable[tuple[int, list[str]]]:
    """(line, cells) of each row; raises ValueError with the line for what is no CSV."""
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


def check_names(names: list[str], line: int = 1) -> None:
    """Raise ValueError for names of columns, on a line, that are empty or not distinct."""
    if not names:
        raise ValueError(f"line {line}: the line is empty; names of columns are expected")
    seen: set[str] = set()
    for column, name in enumerate(names, 1):
        if not name.strip() or name.startswith("\ufeff"):
            raise ValueError(f"line {line}: column {column} has no plain name: {name!r}")
        if name in seen:
            raise ValueError(f"line {line}: there are two columns {name!r}")
        seen.add(name)


def _check_kind(column: pd.Series, kind: str, text: str) -> None:
    """Raise ValueError for the first value of ``column`` that is not of its kind."""
    if kind == TEXT or _is_plainly(column, kind):
        return
    wrong = _wrong(column, kind)
    if not wrong.any():
        return
    place = int(wrong.to_numpy().argmax())
    line = next(line for index, (line, _) in enumerate(rows_of(text)) if index == place + 1)
    raise ValueError(f"line {line}, column {column.name!r}: {str(column.iloc[place])[:40]!r} is not {kind}")


def _is_plainly(column: pd.Series, kind: str) -> bool:
    """Whether all values are of a kind of number by their type alone, which needs no look at each."""
    held = getattr(column.dtype, "kind", "")
    if kind == FINITE and held == "f":
        return not np.isinf(column.to_numpy()).any()
    return held in {NUMBER: "iuf", FINITE: "iu", WHOLE: "i"}.get(kind, "")


def _wrong(column: pd.Series, kind: str) -> pd.Series:
    """Which values of ``column`` are not of a kind."""
    if kind == NAME:
        return column.isna()
    if kind == FLAG:
        return column.notna() & ~column.astype(str).isin(("True", "False"))
    if _is(column, "bool"):
        return column.notna()
    if kind == FINITE and _is(column, "numeric"):
        return np.isinf(column)
    numbers = column if _is(column, "numeric") else pd.to_numeric(column.astype(str), errors="coerce")
    wrong = numbers.isna() & column.notna()
    if kind == FINITE:
        wrong |= np.isinf(numbers.astype(float))
    if kind == WHOLE:
        wrong = numbers.isna() | (numbers % 1 != 0)
    held = _is(column, "signed_integer") if kind == WHOLE else _is(column, "numeric")
    return wrong if held or wrong.any() else column.notna()  # numbers that no type of numpy holds


def _is(column: pd.Series, what: str) -> bool:
    return bool(getattr(pd.api.types, f"is_{what}_dtype")(column))
