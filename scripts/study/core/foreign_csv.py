"""CSV files that people bring: byte order marks, semicolons, tabs, decimal commas, 1,234, blank lines and comments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from study.core.csv_files import check_column_names, parse_rows
from study.core.errors import StudyError
from study.core.quantities import DECIMAL_COMMA, DECIMAL_POINT, POINTS, THOUSANDS, UNCLEAR, parse_number

DELIMITERS = ",;\t"
OF_MARKDOWN = "|"
MARKDOWN_TABLE = re.compile(r"^[ ]*\|.*\n[ ]*\|[ :|-]*-[ :|-]*$", re.M)  # names and the rule below them
RULE = re.compile(r":?-+:?")  # below the names of a Markdown table
SEPARATOR = re.compile(r'"?sep=([,;\t])"?[ ]*(?=\r|\n)', re.I)  # the first line of files that Excel writes


@dataclass(frozen=True)
class ForeignTable:
    """A table of texts.

    Args:
        frame: the cells; an empty one is missing.
        lines: the line of each row in the file.
        decimal: the mark in its numbers: point, comma, or `UNCLEAR`.
        header: the line of the names.
    """

    frame: pd.DataFrame
    lines: list[int]
    decimal: str
    header: int = 1

    def convert_column(self, name: str) -> np.ndarray:
        """A column as numbers; NaN where a cell is empty or not a number."""
        return np.array([parse_number(str(cell), self.decimal) for cell in self.frame[name]], dtype=float)


def explain_unclear_marks(text: str, decimal: str) -> str:
    """Why a cell's comma or point makes it no number, as the end of a sentence; empty if they are not at fault."""
    if decimal == UNCLEAR and THOUSANDS.fullmatch(text):
        return ", since its comma may be a decimal one or divide thousands: write it without, or with a decimal point"
    if decimal == UNCLEAR and POINTS.fullmatch(text):
        return ", since its point may be a decimal one or divide thousands: write it without, or with a further digit"
    if decimal == "," and np.isfinite(parse_number(text)):
        return ", since other numbers of the file have decimal commas: write all in the same way"
    return ""


def read_foreign_csv(path: Path, remedy: str) -> ForeignTable:
    """The table in a CSV file that the study did not write.

    The first line that is neither blank nor a comment (``# ...``) has the names of the columns; the mark that is most
    frequent in it divides them, or the one of a line ``sep=;`` before it. A comment directly before numbers has them
    if it has as many cells. Markdown tables are read too. Names and cells are stripped. Columns without a name, as that
    of an index, are left out. With semicolons or tabs, a comma in a number is a decimal comma, unless
    other numbers have decimal points.

    Raises: `StudyError` with the line for a file that cannot be read, is not UTF-8 text (UTF-16 with its mark is read
    too), has no names, lines of different lengths or two columns of one name.
    """
    try:
        text, delimiter = _find_delimiter(_read_text(path))
        rows = [(line, [cell.strip() for cell in row]) for line, row in parse_rows(text, delimiter)]
        if delimiter == OF_MARKDOWN:
            rows = [(line, _strip_ends(row)) for line, row in rows if len(row) > 1 and not row[0]]
            rows = [(line, row) for line, row in rows if not all(RULE.fullmatch(cell) for cell in row)]
        rows = [(line, row) for line, row in _with_commented_names(rows) if any(row) and not _is_comment(row)]
        if not rows:
            raise ValueError("the file is empty")
        (header, names), *rows = rows
        names = [name.lstrip("#").strip() for name in names]
        check_column_names([name for name in names if name], header)
        for line, row in rows:
            if len(row) != len(names):
                raise ValueError(f"line {line}: {len(row)} values, but line {header} has {len(names)}")
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise StudyError(f"{path}: {error}; {remedy}") from None
    cells = [[cell or np.nan for cell, name in zip(row, names, strict=True) if name] for _, row in rows]
    frame = pd.DataFrame(cells, columns=[name for name in names if name], dtype=object)
    return ForeignTable(frame, [line for line, _ in rows], _find_decimal_mark(frame, delimiter), header)


def _is_comment(row: list[str]) -> bool:
    return row[0] == "#" or row[0].startswith("# ")


def _with_commented_names(rows: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """The rows, in which a comment directly before the first numbers is no comment if it has as many cells."""
    first = next((place for place, (_, row) in enumerate(rows) if any(row) and not _is_comment(row)), 0)
    if first == 0 or not all(np.isfinite(parse_number(cell)) for cell in rows[first][1] if cell):
        return rows
    line, names = rows[first - 1]
    if len(names) < 2 or len(names) != len(rows[first][1]) or not _is_comment(names):
        return rows
    return [*rows[: first - 1], (line, [names[0].removeprefix("#").strip(), *names[1:]]), *rows[first:]]


def _strip_ends(row: list[str]) -> list[str]:
    """The cells of a line of a Markdown table, without what is before its first and behind its last mark."""
    row = [cell.strip("*` ") for cell in row[1:]]
    return row[:-1] if row and not row[-1] else row


def _find_decimal_mark(frame: pd.DataFrame, delimiter: str) -> str:
    """The decimal mark of a table's numbers, see `ForeignTable`; 8,5 settles it, 4,250 does not.

    Semicolons are of languages with decimal commas, whose points divide thousands: there 4.250 does not tell it either.
    """
    if delimiter == ",":
        return "."
    cells = [str(cell) for cell in frame.to_numpy().ravel()]
    with_comma = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    if any(not THOUSANDS.fullmatch(cell) for cell in with_comma):
        return ","
    with_point = [cell for cell in cells if DECIMAL_POINT.fullmatch(cell)]
    if delimiter == ";" and not with_comma and with_point and all(POINTS.fullmatch(cell) for cell in with_point):
        return UNCLEAR
    return UNCLEAR if with_comma and not with_point else "."


def _read_text(path: Path) -> str:
    """The text of a file in UTF-8 or UTF-16; raises ValueError for other bytes."""
    raw = path.read_bytes()
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ValueError(f"line {line}: is not UTF-8 text; a CSV file is expected") from None
    text = text.removeprefix("\ufeff")  # a second mark
    if "\0" in text:
        raise ValueError(f"line {text[: text.index(chr(0))].count(chr(10)) + 1}: there is a zero byte")
    return text


def _find_delimiter(text: str) -> tuple[str, str]:
    """(text without a line ``sep=``, delimiter of its cells)."""
    if match := SEPARATOR.match(text):
        return text[match.end() :], match[1]
    if MARKDOWN_TABLE.search(text):
        return text, OF_MARKDOWN
    for line in text.splitlines():
        if line.strip().startswith(OF_MARKDOWN):
            return text, OF_MARKDOWN
        if line.strip() and not line.startswith("#"):
            plain = re.sub(r'"[^"]*"', "", line)
            return text, max(DELIMITERS, key=plain.count)
    return text, DELIMITERS[0]
