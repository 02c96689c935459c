"""The published numbers of a paper: cells of its CSV files, and what follows from them by the formulas of its claims.

A formula may use, besides arithmetic:

- ``cell(file, column, key=value, ...)``: of the one row with these values; the file is ``<paper>_<file>.csv``.
- ``text(measure, column='value', key=value, ...)``: the same of ``<paper>_text.csv``, with its range; of the claim's
  benchmark unless another is given, where None is a number of no benchmark.
- ``column(file, column, key=value, ...)``: of all rows with these values, by their ``gpus`` if the file has them.
- the numbers that ``claims.yaml`` names under ``numbers``, and the names that a claim has, such as ``benchmark``.
- the functions in `FUNCTIONS`.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from study.core import configuration
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.core.statistics import compute_t_quantile
from study.report import formulas
from study.report.formulas import Cell, Function
from study.report.papers import slim_networks
from study.report.tables.published_values import read_published


@functools.cache
def read_benchmark(name: str) -> dict[str, Any]:
    """The content of a benchmark's file, which is read once; not to be changed."""
    return configuration.load_named("benchmarks", name)


def _read_benchmark_value(benchmark: str, *keys: str) -> Any:
    """A value in the benchmark's file: ``of_benchmark(benchmark, 'workload', 'features')``; None if not there."""
    value: Any = read_benchmark(benchmark)
    for key in keys:
        value = value.get(key)
    return value


FUNCTIONS: dict[str, Function] = {
    **formulas.ARITHMETIC,
    "student": compute_t_quantile,
    "parameters": lambda network: slim_networks.parameters(network).all,
    "parameters_with_gradient": lambda network: slim_networks.parameters(network).trained,
    "of_benchmark": _read_benchmark_value,
}
OF_FILES = ("cell", "column", "text")
Range = tuple[float, float, float]  # a value, or the lowest and the highest one; NaN for what is not published


def select_rows(table: pd.DataFrame, wanted: Mapping[str, Any]) -> pd.DataFrame:
    """The rows with these values; none if a column is missing. None is an empty cell, a tuple any of its values."""
    for name, value in wanted.items():
        if name not in table:
            return table.iloc[:0]
        column = table[name]
        table = table[column.isna() if value is None else column.isin(value if isinstance(value, tuple) else [value])]
    return table


@dataclass(frozen=True)
class Published:
    """What one paper prints. numbers: {name: formula}, the numbers that follow from it by name."""

    paper: str
    numbers: Mapping[str, str]

    def cell(self, file: str, column: str, **where: Any) -> float:
        """A cell of ``<paper>_<file>.csv``. Raises `StudyError` if not exactly one row has the values of ``where``."""
        rows = self._rows(file, where)
        if len(rows) != 1 or column not in rows:
            message = f"{len(rows)} rows instead of one" if column in rows else f"there is no column '{column}'"
            raise StudyError(f"config/papers/{self.paper}/{self.paper}_{file}.csv: {where or 'all rows'}: {message}")
        row = rows.iloc[0]
        return Cell(row[column], row.get("low", math.nan), row.get("high", math.nan))

    def column(self, file: str, column: str, **where: Any) -> pd.Series:
        """A column of the rows with the values of ``where``, by their number of GPUs if the file has it."""
        rows = self._rows(file, where)
        return (rows.set_index("gpus", drop=False) if "gpus" in rows else rows)[column]

    def _rows(self, file: str, where: Mapping[str, Any]) -> pd.DataFrame:
        name = f"{self.paper}_{file}.csv"
        if not (CONFIG / "papers" / self.paper / name).is_file():
            raise StudyError(f"config/papers/{self.paper}/claims.yaml: there is no file {name} beside it")
        return select_rows(read_published(name), where)

    def number(self, formula: str, **names: Any) -> Any:
        """The value of a formula, or of one of ``numbers``. names: such as ``benchmark``."""

        def text(measure: str, column: str = "value", **where: Any) -> float:
            has_benchmark = "benchmark" in self._rows("text", {})
            usual = {"benchmark": names["benchmark"]} if has_benchmark and names.get("benchmark") else {}
            return self.cell("text", column, measure=measure, **(usual | where))

        def resolve_name(name: str) -> Any:
            return names[name] if name in names else self.number(self.numbers[name], **names)

        functions: dict[str, Any] = {**FUNCTIONS, "cell": self.cell, "column": self.column, "text": text}
        return formulas.evaluate_formula(formula, resolve_name, functions)

    def range(self, formula: str | None, **names: Any) -> Range:
        """The value of a formula with its range; all NaN without a formula."""
        value = math.nan if formula is None else self.number(formula, **names)
        return (float(value), value.low, value.high) if isinstance(value, Cell) else (float(value), math.nan, math.nan)
