"""Find what is wrong with a text table, line by line and value by value: file, line, column, and what to do."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.data import text_table
from study.data.tabular import Column, Form

BOOLEAN = re.compile(rb"true|false", re.IGNORECASE)  # pandas reads these as 1 and 0
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Source:
    """A text table: path, names of all columns (numbers if it has no header), number of rows, and bytes."""

    path: Path
    names: Sequence[Column]
    rows: int
    bytes: int


def describe(path: Path, form: Form) -> Source:
    """Names, rows and size, in one pass over the lines; refuses a file that is empty, ragged or truncated.

    pandas does not detect ragged lines: it fills short ones, and takes the first value of a longer one as an index.
    """
    lines, size, columns = 0, 0, 0
    names: Sequence[Column] = ()
    separator = form.separator.encode()
    try:
        with open(path, "rb") as handle:
            for line in handle:
                lines, size = lines + 1, size + len(line)
                found = line.count(separator) + 1
                if lines == 1:
                    columns = found
                    names = text_table.names_in(line, form)
                _check_line(path, lines, line, found, columns, separator)
                if b'"' in line and not (form.header and lines == 1):
                    _refuse_quotes(path, lines, line, separator)
                if BOOLEAN.search(line) and not (form.header and lines == 1):
                    _refuse_faults(path, lines, line, names, form)
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    if form.header and names:
        check_names(path, names)
    rows = lines - form.header
    if rows <= 0:
        what = "has no line after its header" if lines else "is empty"
        raise StudyError(f"{path}: the file {what}; fetch it again or give the right path")
    return Source(path, names, rows, size)


def _check_line(path: Path, number: int, line: bytes, found: int, columns: int, separator: bytes) -> None:
    if b"\0" in line:
        column = line[: line.index(b"\0")].count(separator) + 1
        raise StudyError(f"{path}: line {number}, column {column}: there is a zero byte; fetch the file again")
    if b"\r" in line[:-2] or line[-1:] == b"\r":
        column = line[: line.index(b"\r")].count(separator) + 1
        raise StudyError(f"{path}: line {number}, column {column}: there is a carriage return within the line")
    if line.strip(b"\r\n ") == b"":
        raise StudyError(f"{path}: line {number}, column 1: the line is empty")
    if not line.endswith(b"\n"):
        raise StudyError(
            f"{path}: line {number}, column {found}: the file is cut off: its last line has no end. "
            "Fetch it again; if it is whole, end it with a line feed"
        )
    if found != columns:
        column = min(found, columns + 1)
        raise StudyError(f"{path}: line {number}, column {column}: {found} values, but line 1 has {columns}")


def _refuse_quotes(path: Path, number: int, line: bytes, separator: bytes) -> None:
    """Refuse quotes: a quoted value may contain the separator, and columns could not be counted."""
    column = line[: line.index(b'"')].count(separator) + 1
    value = line.split(separator)[column - 1].decode("ascii", errors="replace").strip()
    raise StudyError(
        f"{path}: line {number}, column {column}: {value[:40]!r} has a quote or is not ASCII; write it plain"
    )


def _refuse_faults(path: Path, number: int, line: bytes, names: Sequence[Column], form: Form) -> None:
    """Check each value of a line."""
    fault = _fault_in(line.decode("ascii", errors="replace"), _kinds(names, form), form)
    if fault:
        raise StudyError(f"{path}: line {number}, {fault}")


def check_names(path: Path, names: Sequence[Any]) -> None:
    """Column names must be unique: pandas would rename a duplicate, and not every loader does it in the same way."""
    if names[0].startswith("\ufffd") or any('"' in name for name in names):
        raise StudyError(f"{path}: line 1: quotes or a byte order mark in the header; write the names plain, in ASCII")
    seen = set()
    for column, name in enumerate(names, start=1):
        if name == "" or name in seen:
            what = "has no name" if name == "" else f"is named {name!r} as an earlier one is"
            raise StudyError(f"{path}: line 1, column {column}: the column {what}; each needs a name of its own")
        seen.add(name)


def find_fault(source: Source, form: Form, first_row: int) -> str | None:
    """The first fault at or after ``first_row`` as a message, found value by value; None if there is none."""
    kinds = _kinds(source.names, form)
    with open(source.path, encoding="ascii", errors="replace", newline="\n") as handle:
        for number, line in enumerate(handle, start=1 - form.header):
            if number > first_row:
                fault = _fault_in(line, kinds, form)
                if fault:
                    return f"{source.path}: line {number + form.header}, {fault}"
    return None


def _kinds(names: Sequence[Column], form: Form) -> list[tuple[Column, str]]:
    return [(name, form.kind(name)) for name in names]


def _fault_in(line: str, kinds: list[tuple[Column, str]], form: Form) -> str | None:
    """The first fault among a line's values, with its column, or None."""
    values = line.rstrip("\n").removesuffix("\r").split(form.separator)
    for column, (value, (name, kind)) in enumerate(zip(values, kinds, strict=True), start=1):
        fault = _fault(value, name, kind, form)
        if fault:
            return f"column {column}: {fault}"
    return None


def _fault(value: str, name: Column, kind: str, form: Form) -> str | None:
    """What is wrong with one value, or None."""
    if '"' in value or "\ufffd" in value:
        return f"{value[:40]!r} has a quote or is not ASCII; write it plain"
    if kind == "left out" or (kind == "number" and value in form.missing):
        return None
    if kind == "code":
        allowed = form.values[form.codes.index(name)]
        if allowed is None:
            return None if value and value not in form.missing else f"the category is {value[:40]!r}"
        good = NUMBER.fullmatch(value.strip(" \t")) and float(value) in allowed
        return None if good else f"the label {value[:40]!r} is not one of {', '.join(map(str, allowed))}"
    if not NUMBER.fullmatch(value.strip(" \t")) or not math.isfinite(float(value)):
        return f"{value[:40]!r} is not a finite number"
    return f"{value[:40]!r} does not fit a 32-bit float" if abs(float(value)) > FLOAT32_MAX else None
