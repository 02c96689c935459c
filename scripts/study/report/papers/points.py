"""Points of a study in the columns of a paper's tables, and the paper's own: its tables and its claims read both."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core import configuration
from study.experiment.parameters import is_observed
from study.records.power import NODE_POWER, WHOLE_RUN_NODE
from study.report.papers import formulas
from study.report.tables.layout import ci95_name
from study.report.tables.published_values import read_published
from study.report.tables.summary import points

USUAL = "usual"  # of ``batch_size``: the benchmark's


@dataclass(frozen=True)
class Points:
    """The points of one published table.

    Args:
        file: of published values.
        what: the paper's tables in it.
        columns: {the paper's column: the column of the tidy table of runs}, for measured ones.
        runs: which runs belong in it: {key: value}, and ``observed``, by which key; see the schema of claims.
        theirs: {column: formula over published ones}.
        ours: the same, over the paper's columns and those that our points have besides.
    """

    file: str
    what: str
    columns: Mapping[str, str]
    runs: Mapping[str, Any]
    theirs: Mapping[str, str] = field(default_factory=dict)
    ours: Mapping[str, str] = field(default_factory=dict)

    def uses(self, run: Any) -> bool:
        """Whether a run belongs in it, planned or a row of the tidy table of runs."""
        if not is_observed(run, self.runs.get("observed")):
            return False
        wanted = {name: value for name, value in self.runs.items() if name != "observed"}
        if wanted.get("batch_size") == USUAL:
            wanted["batch_size"] = benchmark(run["benchmark"]).get("batch_size")  # a command may have none
        return all(run[name] == value for name, value in wanted.items())

    def average_runs(self, runs: pd.DataFrame) -> pd.DataFrame:
        """One row per point of our runs, in the paper's columns."""
        names = {ours: theirs for theirs, ours in self.columns.items()}
        windows = ("energy_window_s", "whole_run_window_s")
        more = [name for name in (*NODE_POWER, *WHOLE_RUN_NODE, *windows, "load_s") if name not in names]
        chosen = kinds.select_runs(runs, self.uses)
        if chosen.empty:
            return pd.DataFrame()
        table = points(chosen, [*names, *more])
        intervals = {ci95_name(ours): ci95_name(theirs) for ours, theirs in names.items()}
        return _add_derived_columns(table.rename(columns=names | intervals), self.ours)

    def select_runs(self, runs: pd.DataFrame) -> pd.DataFrame:
        """The runs that belong in it, of the paper's networks, with the columns that follow from the paper's."""
        chosen = kinds.select_runs(runs, self.uses)
        if chosen.empty:
            return chosen
        chosen = chosen[chosen["benchmark"].isin(read_published(self.file)["benchmark"])]
        return _add_derived_columns(chosen, self.ours, self.columns)

    def read_published(self) -> pd.DataFrame:
        """The published rows, with the derived columns."""
        return _add_derived_columns(read_published(self.file), self.theirs)


def _add_derived_columns(
    table: pd.DataFrame, derived: Mapping[str, str], columns: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """The table with columns that follow from others.

    derived: {column: formula over the others}. columns: {name in a formula: the column}, where these differ.
    """

    def column(name: str) -> pd.Series:
        return table[(columns or {}).get(name, name)]

    return table.assign(**{name: formulas.evaluate_formula(formula, column, {}) for name, formula in derived.items()})


@functools.cache
def benchmark(name: str) -> dict[str, Any]:
    """The content of a benchmark's file, which is read once; not to be changed."""
    return configuration.load_named("benchmarks", name)
