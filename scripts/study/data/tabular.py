"""The form of a text table, and how a data frame read from it becomes the study's matrix.

The matrix is float32 of shape (rows, codes + numbers): first each column of categories, as positions in its list of
values, then the numeric columns in the file's order. Conversion and loaders share this code, so their results are
bit-identical.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.core.lazy import pandas as pd

SEPARATORS = {"comma": ",", "tab": "\t"}

Column = str | int  # a name or, in a file without a header, a number counted from 0


def _parse_number(text: str) -> float | None:
    """The number that Python, and so pandas, takes a text for; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def find_paper_size(spec: Mapping[str, Any]) -> str | None:
    """``train`` or ``test``, the paper's size that a file belongs to (icpp2019, Tables 1, 3, 4), or None.

    spec: the file's dict in the benchmark's YAML.
    """
    return spec.get("paper_size", spec.get("split"))


@dataclass(frozen=True)
class Form:
    """The form of one file, from ``files`` in a benchmark's YAML."""

    header: bool
    separator: str = ","
    codes: tuple[Column, ...] = ()  # columns of categories: names, or numbers counted from 0 without a header
    values: tuple[tuple[int, ...] | None, ...] = ()  # for each of these the integers allowed, or None for any text
    drop: tuple[Column, ...] = ()
    keep: tuple[Column, ...] | None = None  # the numeric columns, in this order; None for all
    missing: tuple[str, ...] = ()  # words that stand for a missing value; one that is a number, for all its texts
    has_plain_numbers: bool = False  # see `study.data.text_table.are_plain`; of a converted file, from its sidecar

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The form from the dict in the benchmark's YAML."""
        codes = spec.get("codes", [])
        return cls(
            header=spec["header"],
            separator=SEPARATORS[spec.get("separator", "comma")],
            codes=tuple(code["column"] for code in codes),
            values=tuple(tuple(code["values"]) if "values" in code else None for code in codes),
            drop=tuple(spec.get("drop", ())),
            keep=tuple(spec["keep"]) if "keep" in spec else None,
            missing=tuple(spec.get("missing", ())),
        )

    @property
    def text(self) -> list[Column]:
        """The columns of categories whose values may be any text."""
        return [column for column, values in zip(self.codes, self.values, strict=True) if values is None]

    def find_use(self, column: Column) -> str:
        """``code``, ``number`` or ``left out``: how a column is used."""
        if column in self.codes:
            return "code"
        is_number = column not in self.drop and (self.keep is None or column in self.keep)
        return "number" if is_number else "left out"

    @functools.cached_property
    def missing_numbers(self) -> tuple[np.float32, ...]:
        """Numbers among the words for a missing value; compared as values by pandas, so ``-999`` is ``-999.0``."""
        with np.errstate(over="ignore"):
            numbers = [np.float32(number) for number in map(_parse_number, self.missing) if number is not None]
        return tuple(number for number in numbers if np.isfinite(number))

    def mark_missing(self, numbers: NDArray[np.float32]) -> None:
        """Make NaN of the numbers that stand for missing values, in place."""
        for number in self.missing_numbers:
            numbers[numbers == number] = np.nan

    def is_missing(self, text: str) -> bool:
        """True if a text means a missing value."""
        if text in self.missing:
            return True
        number = _parse_number(text) if self.missing_numbers else None
        return number is not None and np.float32(number) in self.missing_numbers

    def build_reading_options(self) -> dict[str, Any]:
        """Keyword arguments for pandas' ``read_csv``: CANDLE's own call, and what makes its numbers exact if need be.

        By default pandas rounds the last digit of long numbers otherwise, reads columns of integers without the sign of
        a zero and as text beyond 64 bits. Its parser that is always exact takes three times as long, and lets no other
        thread run; without inferring the types of columns it is faster. So the call stays CANDLE's where that is exact.
        """
        options: dict[str, Any] = {"header": 0 if self.header else None}
        if self.separator != ",":
            options["sep"] = self.separator
        if not self.has_plain_numbers:
            options |= {"dtype": self.build_types(), "float_precision": "round_trip"}
        elif self.text:
            options["dtype"] = dict.fromkeys(self.text, str)
        if not self.has_plain_numbers or self.missing or self.text:  # else words such as NA were missing values
            options |= {"keep_default_na": False, "na_values": list(self.missing)}
        return options

    def build_types(self) -> Any:
        """The ``dtype`` for pandas: float64, except text and columns that are left out, which may be anything.

        A type, or a mapping from columns.
        """
        if self.keep is not None:
            numbers = [*self.keep, *(column for column in self.codes if column not in self.text)]
            return defaultdict(lambda: str, dict.fromkeys(numbers, np.float64))
        others = [*self.text, *self.drop]
        return defaultdict(lambda: np.float64, dict.fromkeys(others, str)) if others else np.float64

    def build_matrix(self, frame: pd.DataFrame, values: Iterable[Sequence[Any]]) -> NDArray[np.float32]:
        """The matrix of ``frame``, read with `build_reading_options`. values: each code column's list of values."""
        numbers = self.select_numbers(frame.columns)
        matrix = np.empty((len(frame), len(self.codes) + len(numbers)), dtype=np.float32)
        for index, (column, known_values) in enumerate(zip(self.codes, values, strict=True)):
            matrix[:, index] = self.find_positions(frame[column], known_values)
        if numbers:
            # Through float64, as the benchmarks do: integer columns are rounded in the same way as the others.
            matrix[:, len(self.codes) :] = frame[numbers].to_numpy(dtype=np.float64)
            self.mark_missing(matrix[:, len(self.codes) :])
        return matrix

    def select_numbers(self, columns: Iterable[Column]) -> list[Column]:
        """The numeric columns that are kept, out of the file's ``columns``."""
        if self.keep is not None:
            return list(self.keep)
        return [column for column in columns if self.find_use(column) == "number"]

    @staticmethod
    def find_positions(column: pd.Series, known: Sequence[Any]) -> NDArray[np.int64]:
        """Positions of a column's values in the list ``known``; raises `StudyError` for a value that is not in it."""
        places = pd.Index(known).get_indexer(column)
        if (places < 0).any():
            strange = column[places < 0].iloc[0]
            raise StudyError(f"column {column.name}: {strange!r} is not one of its {len(known)} known values")
        return places
