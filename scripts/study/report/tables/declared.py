"""The tables as `config/tables.yaml` and `config/papers/<paper>/tables.yaml` declare them.

A declaration has a table's words and columns. With measures, a row has their means, and with published, a paper's
values beside them; without, code that is registered with `table_rows` makes the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.compare import failed_runs
from study.core import fields, validation
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.core.statistics import compute_spread_pct
from study.experiment.parameters import is_observed
from study.experiment.study import Study
from study.records.names import runs_of
from study.report import formulas
from study.report.tables.layout import Table, ci95_name
from study.report.tables.point_comparisons import add_comparisons, fits
from study.report.tables.summary import IDENTITY, notes, optional_columns, points, steady

OF_RUNS: dict[str, Callable[[pd.Series], Any]] = {
    "first": lambda values: values.iloc[0] if len(values) else None,
    "sum": lambda values: int(values.sum()),
    "any": lambda values: bool(values.eq(True).any()),
    "texts": lambda values: "; ".join(values.unique()) or None,
    "spread_pct": compute_spread_pct,
}
FLAGS = ("uses_loading", "compares_runs", "reads_further", "reads_targets")


@dataclass(frozen=True)
class Rows:
    """The rows of a declared table that code makes.

    Args:
        frame: the rows with all their columns.
        remarks: sentences for below the table, after those that all tables have.
        first_remarks: sentences before those.
        columns: those that are shown, where they depend on the runs.
    """

    frame: pd.DataFrame
    remarks: Sequence[str] = ()
    first_remarks: Sequence[str] = ()
    columns: Sequence[str] | None = None


MakeRows = Callable[[pd.DataFrame, pd.DataFrame], Rows]


def list_files() -> list[Path]:
    """The YAML files that declare tables: our own, then the papers'."""
    return [CONFIG / "tables.yaml", *sorted(CONFIG.glob("papers/*/tables.yaml"))]


@functools.cache
def load_declarations() -> dict[str, dict[str, Any]]:
    """All declarations by table; raises `StudyError` for a file that is not as config/schemas/tables.schema.yaml."""
    return {
        name: declaration
        | {"is_of_paper": file.parent != CONFIG, "where": f"{validation.shorten_path(file)}: tables.{name}"}
        for file in list_files()
        for name, declaration in validation.load_valid_yaml(file, "tables")["tables"].items()
    }


@functools.cache
def load_verb_table(name: str) -> dict[str, Any]:
    """The declaration of a table that a verb makes."""
    declarations: dict[str, Any] = validation.load_valid_yaml(CONFIG / "tables.yaml", "tables")["of_verbs"]
    return declarations[name]


def make_verb_table(
    name: str,
    frame: pd.DataFrame,
    notes: Sequence[str] = (),
    identity: Sequence[str] = (),
    columns: Sequence[str] = (),
    **words: Any,
) -> Table:
    """A table that a verb makes. columns: those shown if they are not the declared ones. words: of its caption."""
    declared = load_verb_table(name)
    shown_columns, optional = list(columns or declared["columns"]), tuple(declared.get("optional", ()))
    return Table(
        name, declared["caption"].format(**words), frame, shown_columns, optional, list(notes), tuple(identity)
    )


def table_rows(
    name: str, uses: kinds.Uses | None = None, is_there: Callable[[Study], bool] | None = None
) -> Callable[[MakeRows], kinds.Make]:
    """Register the decorated function, which makes the rows of the declared table ``name``.

    uses, is_there: as of `study.report.tables.kinds.table`; by default as declared.
    """
    declaration = load_declarations()[name]
    for key in ("run_columns", "point_columns"):
        for column, formula in declaration.get(key, {}).items():
            formulas.check_formula(f"{declaration['where']}.{key}.{column}", formula, formulas.ARITHMETIC)

    def register(make_rows: MakeRows) -> kinds.Make:
        @functools.wraps(make_rows)
        def make(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
            return _make_table(name, declaration, make_rows(runs, loading))

        return kinds.table(
            name,
            title=declaration["title"],
            look_for=declaration["look_for"],
            needs=declaration.get("needs", kinds.NEEDS_TIMINGS),
            uses=uses or _select_runs(declaration),
            is_there=is_there or _find_in_study(declaration),
            verdicts=tuple(declaration.get("verdicts", ())),
            **{flag: declaration.get(flag, False) for flag in FLAGS},
        )(make)

    return register


def register_tables_of_points() -> None:
    """Register the declared tables of means, whose rows no code makes; raises `StudyError` for an unknown measure."""
    for name, declaration in load_declarations().items():
        if "measures" not in declaration or "published" in declaration:  # those beside papers register themselves
            continue
        known_columns = {*fields.list_columns(), *declaration.get("run_columns", ())}
        if unknown := [measure for measure in declaration["measures"] if measure not in known_columns]:
            raise StudyError(
                f"{declaration['where']}.measures: {unknown[0]!r} is not a column of runs.csv"
                f"{validation.suggest_nearest(unknown[0], known_columns)}"
            )
        if name not in kinds.TABLES:
            table_rows(name)(functools.partial(make_points, declaration))


def _make_table(name: str, declaration: Mapping[str, Any], made: Rows) -> Table:
    columns = [column for column in made.columns or declaration["columns"] if column in made.frame]
    always = declaration.get("always", ())
    optional = (
        *(column for column in optional_columns(columns) if column not in always),
        *declaration.get("optional", ()),
    )
    identity = (*declaration.get("identity", IDENTITY), *declaration.get("identity_further", ()))
    of_all = notes(made.frame, declaration.get("rows_share_runs", False))
    remarks = [*made.first_remarks, *of_all, *made.remarks, *declaration.get("remarks", ())]
    frame = move_to_front(made.frame, columns) if declaration["is_of_paper"] else made.frame
    return Table(name, declaration["caption"], frame, columns, optional, remarks, identity)


def move_to_front(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with ``columns`` first and all others after them."""
    return table[[*columns, *(column for column in table if column not in columns)]]


def make_points(declaration: Mapping[str, Any], runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point, with the mean of each measure; raises `StudyError` for a declared column that is not there."""
    return finish_rows(declaration, average_points(declaration, runs))


def average_points(declaration: Mapping[str, Any], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per point with the mean of each declared measure: those that have the values of ``rows``."""
    measures, derived = declaration["measures"], declaration.get("run_columns", {})
    runs = formulas.add_columns(runs, derived)
    runs = steady(runs) if declaration.get("without_first_epoch") else runs
    table = points(runs, measures)
    for name, formula in derived.items():
        names, _ = formulas.list_used_names(formula)
        sources = [each for each in measures if each in names]  # without a mean of one of them, it has none
        for column in (name, ci95_name(name)):
            table[column] = table[column].where(table[sources].notna().all(axis=1))
    for name, how in declaration.get("of_runs", {}).items():
        ((reduction, column),) = how.items() if isinstance(how, dict) else ((how, name),)
        values = failed_runs.keep_proven(runs) if reduction == "spread_pct" else runs
        table[name] = [OF_RUNS[reduction](runs_of(values, records)[column].dropna()) for records in table["records"]]
    table = add_comparisons(declaration, table, runs) if "comparisons" in declaration else table
    return kinds.select_runs(table, lambda row: fits(row, declaration.get("rows", {})))


def finish_rows(declaration: Mapping[str, Any], table: pd.DataFrame, remarks: Sequence[str] = ()) -> Rows:
    """The rows with their ``point_columns``, in order.

    Raises `StudyError` for a declared column that is not there.
    """
    table = formulas.add_columns(table, declaration.get("point_columns", {}))
    order = [name.removeprefix("-") for name in declaration["order"]]
    columns = () if "published" in declaration else declaration["columns"]  # without runs it has not all of them
    if unknown := [column for column in (*columns, *order) if column not in table]:
        raise StudyError(
            f"{declaration['where']}: there is no column {unknown[0]!r}{validation.suggest_nearest(unknown[0], table)}"
        )
    ascending = [not name.startswith("-") for name in declaration["order"]]
    table = table.sort_values(order, ascending=ascending, ignore_index=True)
    return Rows(table, remarks)


def _select_runs(declaration: Mapping[str, Any]) -> kinds.Uses:
    """Whether a run, planned or a row of runs.csv, is one that the declared table is made from."""
    if declaration.get("uses_loading") and "runs" not in declaration:
        return kinds.no_run
    conditions = dict(declaration.get("runs", {}))
    observed = conditions.pop("observed", None)
    return lambda run: is_observed(run, observed) and fits(run, conditions)


def _find_in_study(declaration: Mapping[str, Any]) -> Callable[[Study], bool] | None:
    if "study_has" not in declaration:
        return None
    needed = declaration["study_has"] if isinstance(declaration["study_has"], list) else [declaration["study_has"]]
    return lambda study: all(any(fits(run, each) for run in study.runs) for each in needed)
