"""Find what is wrong with a text table, line by line and value by value: file, line, column, and what to do."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.core.file_kinds import HEAD_BYTES, PLAIN, describe_beginning
from study.data import text_file, text_table
from study.data.tabular import Column, Form

BOOLEAN = re.compile(rb"true|false", re.IGNORECASE)  # pandas reads these as 1 and 0
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FIRST_LINES = 100  # by which it is told whether each line ends with a separator
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Source:
    """A text table: path, names of all columns (numbers if it has no header), number of rows, and bytes."""

    path: Path
    names: Sequence[Column]
    rows: int
    bytes: int


def describe_table(path: Path, form: Form) -> Source:
    """Names, rows and size of a table, in one pass; raises `StudyError` if it is empty, ragged or truncated.

    pandas does not detect ragged lines: it fills short ones, and takes the first value of a longer one as an index.
    """
    lines, size, columns = 0, 0, 0
    names: Sequence[Column] = ()
    separator = form.separator.encode()

    def see(stored: memoryview) -> None:
        nonlocal size
        size += len(stored)

    try:
        with text_file.open_text(path, see) as handle:
            for line in handle:
                lines += 1
                values = line.count(separator) + 1
                if lines == 1:
                    columns = values
                    names = text_table.split_names(line, form)
                _check_line(path, lines, line, values, columns, separator)
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
        fault = "has no line after its header" if lines else "is empty"
        raise StudyError(f"{path}: the file {fault}; fetch it again or give the right path")
    return Source(path, names, rows, size)


def _check_line(path: Path, number: int, line: bytes, found: int, columns: int, separator: bytes) -> None:
    """Raise `StudyError` for a line with a zero byte, a stray carriage return, no end or a wrong number of values."""
    if b"\0" in line:
        column = line[: line.index(b"\0")].count(separator) + 1
        raise StudyError(f"{path}: line {number}, column {column}: there is a zero byte; fetch the file again")
    if b"\r" in line[:-2] or line[-1:] == b"\r":
        column = line[: line.index(b"\r")].count(separator) + 1
        raise StudyError(
            f"{path}: line {number}, column {column}: there is a carriage return within the line; "
            "end each line with a line feed, such as with `tr '\\r' '\\n' < FILE > NEW`"
        )
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
    """Raise `StudyError` for the first quote in a line, since a quoted value may contain the separator."""
    column = line[: line.index(b'"')].count(separator) + 1
    value = _decode(line.split(separator)[column - 1]).strip()
    raise StudyError(f"{path}: line {number}, column {column}: {_explain_not_plain(value)}")


def _refuse_faults(path: Path, number: int, line: bytes, names: Sequence[Column], form: Form) -> None:
    """Raise `StudyError` for the first wrong value of a line."""
    fault = _find_line_fault(_decode(line), _list_kinds(names, form), form)
    if fault:
        raise StudyError(f"{path}: line {number}, {fault}")


def check_names(path: Path, names: Sequence[Any]) -> None:
    """Raise `StudyError` if a column name is not plain ASCII or not unique.

    pandas would rename a duplicate, and not every loader does it in the same way. A name in another encoding could
    become another one.
    """
    earlier_names = set()
    for column, name in enumerate(names, start=1):
        if fault := _find_name_fault(name):
            raise StudyError(f"{path}: line 1, column {column}: the name {fault}")
        if name == "" or name in earlier_names:
            problem = "has no name" if name == "" else f"is named {name!r} as an earlier one is"
            raise StudyError(f"{path}: line 1, column {column}: the column {problem}; each needs a name of its own")
        earlier_names.add(name)


def _find_name_fault(name: str) -> str | None:
    """What is wrong with a column's name, or None."""
    if '"' in name or not name.isascii():
        return _explain_not_plain(name)
    control = next((character for character in name if not character.isprintable() and character != "\t"), None)
    return control and f"{name[:40]!r} has the control character {control!r}; write it plain"


def _decode(line: bytes) -> str:
    """Bytes as text, in which each byte that is not UTF-8 is kept as a surrogate."""
    return line.decode("utf-8", errors="surrogateescape")


def _explain_not_plain(value: str) -> str:
    """Message about a text with a quote or not in ASCII; bytes that are not UTF-8 are shown as numbers."""
    visible_text = value[:40].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    fault = "has a quote" if '"' in value else "is not ASCII"
    return f"{visible_text!r} {fault}; write it plain".replace("\\\\", "\\")


def suggest_cause(path: Path, form: Form) -> str:
    """What else may be wrong by a table's first lines, such as another separator; empty if nothing."""
    try:
        lines = _read_first_lines(path)
    except (OSError, StudyError):
        return ""
    line = lines[0] if lines else b""
    if not PLAIN.fullmatch(line[:HEAD_BYTES]):
        return "" if text_file.recognize_file(path) else f"; {describe_beginning(line)}"
    if _ends_with_separators(lines, form):
        mark = form.separator.replace("\t", "\\t")
        return f"; each line ends with a separator: remove it, such as with `sed 's/{mark}\\r*$//' FILE > NEW`"
    others = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
    expected_name = next(name for mark, name in others.items() if mark == form.separator)
    counts = {name: line.count(mark.encode()) for mark, name in others.items() if mark != form.separator}
    name, most = max(counts.items(), key=lambda item: item[1])
    separators = line.count(form.separator.encode())
    if most == 0 or (most < separators and name != "semicolons"):
        return ""
    decimal = ", and decimal points instead of decimal commas" if name == "semicolons" and separators else ""
    return f"; line 1 has {most} {name}: separate the values by {expected_name}{decimal}"


def _read_first_lines(path: Path) -> list[bytes]:
    with text_file.open_text(path) as handle:
        return list(itertools.islice(handle, FIRST_LINES))


def _ends_with_separators(lines: Sequence[bytes], form: Form) -> bool:
    """Whether lines have a separator behind their last value: all of them, or all but the one with the names."""
    separator = form.separator.encode()
    counts = [line.count(separator) for line in lines]
    rows = [line.rstrip(b"\r\n").endswith(separator) for line in lines]
    if not form.header or (rows and rows[0]):
        return all(rows)
    return all(rows[1:]) and counts[0] < min(counts[1:], default=0)


def check_last_column(path: Path, form: Form, matrix: NDArray[np.float32], numbers: Sequence[Column]) -> None:
    """Raise `StudyError` if a table without names has nothing in its last column, behind a separator."""
    if form.header or not _ends_with_separators(lines := _read_first_lines(path), form):
        return
    last = text_table.split_names(lines[0], form)[-1]
    if last in numbers and np.isnan(matrix[:, len(form.codes) + list(numbers).index(last)]).all():
        raise StudyError(f"{path}: line 1, column {int(last) + 1}: no line has a value in it")


def find_fault(source: Source, form: Form, first_row: int) -> str | None:
    """Message of the first wrong value at or after ``first_row``; None if there is none."""
    kinds = _list_kinds(source.names, form)
    with text_file.open_text(source.path) as handle:
        for number, line in enumerate(handle, start=1 - form.header):
            if number > first_row:
                fault = _find_line_fault(_decode(line), kinds, form)
                if fault:
                    return f"{source.path}: line {number + form.header}, {fault}"
    return None


def _list_kinds(names: Sequence[Column], form: Form) -> list[tuple[Column, str]]:
    """(name, use) of each column."""
    return [(name, form.find_use(name)) for name in names]


def _find_line_fault(line: str, kinds: list[tuple[Column, str]], form: Form) -> str | None:
    """The first fault among a line's values, with its column, or None."""
    values = line.rstrip("\n").removesuffix("\r").split(form.separator)
    for column, (value, (name, kind)) in enumerate(zip(values, kinds, strict=True), start=1):
        fault = _find_value_fault(value, name, kind, form)
        if fault:
            return f"column {column}: {fault}"
    return None


def _find_value_fault(value: str, name: Column, kind: str, form: Form) -> str | None:
    """What is wrong with one value, or None."""
    if '"' in value or not value.isascii():
        return _explain_not_plain(value)
    if kind == "left out" or (kind == "number" and form.is_missing(value)):
        return None
    if kind == "code":
        allowed = form.values[form.codes.index(name)]
        if allowed is None:
            return None if value and not form.is_missing(value) else f"the category is {value[:40]!r}"
        good = NUMBER.fullmatch(value.strip(" \t")) and float(value) in allowed and not form.is_missing(value)
        return None if good else f"the label {value[:40]!r} is not one of {', '.join(map(str, allowed))}"
    if not NUMBER.fullmatch(value.strip(" \t")) or not math.isfinite(float(value)):
        return f"{value[:40]!r} is not a finite number"
    return f"{value[:40]!r} does not fit a 32-bit float" if abs(float(value)) > FLOAT32_MAX else None
