"""CSV files that people bring: byte order marks, semicolons, tabs, decimal commas, 1,234, blank lines and comments."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from study.core.csv_files import check_names, rows_of
from study.core.errors import StudyError

DELIMITERS = ",;\t"
THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
DECIMAL_COMMA = re.compile(r"[-+]?([0-9]{1,3}(\.[0-9]{3})*|[0-9]+),[0-9]+([eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class ForeignTable:
    """A table of texts. lines: the line of each row in the file. decimal: the mark in its numbers, point or comma."""

    frame: pd.DataFrame
    lines: list[int]
    decimal: str

    def numbers(self, name: str) -> np.ndarray:
        """A column as numbers; NaN where the cell is empty or is none. An empty cell is missing in `frame`."""
        return np.array([number(str(cell), self.decimal) for cell in self.frame[name]], dtype=float)


def number(text: str, decimal: str = ".") -> float:
    """The number in a cell, without thousands separators; NaN if it is none."""
    text = text.strip()
    if decimal == "," and DECIMAL_COMMA.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    elif THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return float(text) if re.fullmatch(r"[-+.0-9eE]+|[-+]?inf", text) else float("nan")
    except ValueError:
        return float("nan")


def read_foreign_csv(path: Path, remedy: str) -> ForeignTable:
    """The table in a CSV file that the study did not write.

    The first line that is neither blank nor a comment (``# ...``) has the names of the columns; the mark that is most
    frequent in it divides them. Names and cells are stripped. With semicolons or tabs, a comma in a number is a decimal
    comma.

    Raises: `StudyError` with the line for a file that cannot be read, is not UTF-8 text (UTF-16 with its mark is read
    too), has no names, lines of different lengths or two columns of one name.
    """
    try:
        text = _text(path)
        delimiter = _delimiter(text)
        rows = [(line, [cell.strip() for cell in row]) for line, row in rows_of(text, delimiter)]
        rows = [(line, row) for line, row in rows if any(row) and row[0] != "#" and not row[0].startswith("# ")]
        if not rows:
            raise ValueError("the file is empty")
        (first, names), *rows = rows
        check_names(names, first)
        for line, row in rows:
            if len(row) != len(names):
                raise ValueError(f"line {line}: {len(row)} values, but line {first} has {len(names)}")
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise StudyError(f"{path}: {error}; {remedy}") from None
    cells = [[cell or np.nan for cell in row] for _, row in rows]
    frame = pd.DataFrame(cells, columns=names, dtype=object)
    has_comma = delimiter != "," and frame.map(lambda cell: bool(DECIMAL_COMMA.fullmatch(str(cell)))).to_numpy().any()
    return ForeignTable(frame, [line for line, _ in rows], "," if has_comma else ".")


def _text(path: Path) -> str:
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


def _delimiter(text: str) -> str:
    for line in io.StringIO(text):
        if line.strip() and not line.startswith("#"):
            plain = re.sub(r'"[^"]*"', "", line)
            return max(DELIMITERS, key=plain.count)
    return DELIMITERS[0]
