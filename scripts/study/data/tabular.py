"""What a text table looks like, and how a data frame read from it becomes the study's matrix.

The matrix is float32 of shape (rows, codes + numbers): first each column of categories, as positions in its list of
values, then the numeric columns in the file's order. Conversion and loaders share this, so their bits are the same.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd

from study.core.errors import StudyError

SEPARATORS = {"comma": ",", "tab": "\t"}


@dataclass(frozen=True)
class Form:
    """The form of one file, as ``files`` in a benchmark's YAML has it."""

    header: bool
    separator: str = ","
    codes: tuple = ()  # columns of categories: names, or numbers counted from 0 without a header
    values: tuple = ()  # for each of these the integers allowed, or None for any text
    drop: tuple = ()
    keep: tuple | None = None  # the numeric columns, in this order; None for all
    missing: tuple = ()  # words that stand for a missing value

    @classmethod
    def of(cls, spec):
        """From the dict in the benchmark's YAML."""
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
    def text(self):
        """The columns of categories whose values are any text."""
        return [column for column, values in zip(self.codes, self.values, strict=True) if values is None]

    def kind(self, column):
        """``code``, ``number`` or ``left out``: what becomes of a column."""
        if column in self.codes:
            return "code"
        kept = column not in self.drop and (self.keep is None or column in self.keep)
        return "number" if kept else "left out"

    def reading_options(self, number=None):
        """Keyword arguments for pandas' and Dask's ``read_csv``: as CANDLE calls it where nothing else is needed.

        number: the type of all columns but text, None to let pandas find out.
        """
        options = {"header": 0 if self.header else None}
        if self.separator != ",":
            options["sep"] = self.separator
        if number is not None:
            options["dtype"] = self._types(number)
        elif self.text:
            options["dtype"] = dict.fromkeys(self.text, str)
        if self.missing or self.text:
            options |= {"keep_default_na": False, "na_values": list(self.missing)}
        return options

    def _types(self, number):
        """``number`` for all columns but text and what is left out, which may be anything."""
        if self.keep is not None:
            return defaultdict(lambda: str, dict.fromkeys(self.keep, number))
        others = [*self.text, *self.drop]
        return defaultdict(lambda: number, dict.fromkeys(others, str)) if others else number

    def matrix(self, frame, values):
        """The matrix of ``frame``, read with `reading_options`. values: for each code column its list of values."""
        numbers = self.numbers(frame.columns)
        matrix = np.empty((len(frame), len(self.codes) + len(numbers)), dtype=np.float32)
        for index, (column, known) in enumerate(zip(self.codes, values, strict=True)):
            matrix[:, index] = self.positions(frame[column], known)
        if numbers:
            # Over float64, as the benchmarks do: an integer column is not rounded in another way than the others.
            matrix[:, len(self.codes) :] = frame[numbers].to_numpy(dtype=np.float64)
        return matrix

    def numbers(self, columns):
        """The numeric columns that are kept, of the file's ``columns``."""
        if self.keep is not None:
            return list(self.keep)
        return [column for column in columns if self.kind(column) == "number"]

    @staticmethod
    def positions(column, known):
        """Positions of a column's values in the list ``known``; raises `StudyError` for a value that is not in it."""
        found = pd.Index(known).get_indexer(column)
        if (found < 0).any():
            strange = column[found < 0].iloc[0]
            raise StudyError(f"column {column.name}: {strange!r} is not one of its {len(known)} known values")
        return found
