"""Tables of a paper, with our points beside its published ones: those that declare ``published`` or ``networks``."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from study.compare import failed_runs
from study.records.power import WHOLE_RUN
from study.report.papers import slim_networks
from study.report.papers.declaration import load_paper
from study.report.papers.workload import workload_difference
from study.report.tables.declared import Rows, average_points, finish_rows, load_declarations, table_rows
from study.report.tables.ensembles import gives_rates
from study.report.tables.layout import ci95_name
from study.report.tables.published_values import add_published_columns, add_unmeasured_rows, paper_of, read_published
from study.report.tables.summary import points

# One rule for all papers: power and energy are compared in equal windows only.
WINDOW = (
    "power and energy of the paper are of the whole run, so ratios are of columns whole_run_; the others begin with "
    "load and end with evaluate (energy_window_s)"
)


def _register_tables() -> None:
    """Register the tables of papers that declare ``published``; no code makes their rows."""
    for name, declaration in load_declarations().items():
        if "published" in declaration:
            table_rows(name)(functools.partial(_make_rows, declaration))
        elif "networks" in declaration:
            about = declaration["networks"]
            uses = functools.partial(_is_of_networks, about["file"])
            table_rows(name, uses=uses)(functools.partial(_make_network_rows, **about))


def _is_of_networks(file: str, run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings or rates of one of a file's networks."""
    return gives_rates(run) and run["benchmark"] in set(read_published(file)["benchmark"])


def _make_rows(declaration: Mapping[str, Any], runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """The rows of a table that declares ``published``: one per point of our runs, and of the paper if it says so."""
    about = declaration["published"]
    file, keys, measures = about["file"], about["keys"], about["measures"]
    differences = workload_difference(paper_of(file), own=about.get("own", ()))
    if runs.empty and about.get("unmeasured"):
        table = pd.DataFrame(columns=[*keys, *declaration["measures"]])
    else:
        table = average_points(declaration, runs)
    called = about.get("called", {})
    table = table.rename(columns=called | {ci95_name(own): ci95_name(theirs) for own, theirs in called.items()})
    ours = table[[name for name in about.get("counts_as", ()) if name in table]]
    table = table.replace(about.get("counts_as", {}))
    join = join_published if about.get("unmeasured") else add_published_columns
    table = join(table, file, keys, measures, differences, ours=about.get("alike"))
    for name in ours:
        table[name] = pd.concat([ours[name], table[name].iloc[len(ours) :]], ignore_index=True)
    numbers = load_paper(paper_of(file)).published
    has_values = table[[f"published_{name}" for name in measures]].notna().all(axis=1)
    for name in about.get("numbers", ()):
        table[f"published_{name}"] = [
            numbers.number(name, benchmark=benchmark) if there else math.nan
            for benchmark, there in zip(table["benchmark"], has_values, strict=True)
        ]
    return finish_rows(declaration, table, window_notes(runs) if "alike" in about else ())


def window_notes(runs: pd.DataFrame) -> list[str]:
    """What a reader needs to know of the windows of power, and why the whole run's is missing. runs: the tidy table."""
    reason = f"{WHOLE_RUN}power_reason"
    reasons = failed_runs.keep_proven(runs)[reason].dropna().unique() if reason in runs else ()
    return [WINDOW, *(f"no power of the whole run: {each}" for each in reasons)]


def join_published(
    table: pd.DataFrame,
    file: str,
    keys: list[str],
    measures: list[str],
    differences: Callable[[pd.Series], str | None],
    ours: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Our points beside the published ones, and a row for each of those without a run.

    Args:
        table: of `points`; without runs, an empty one with their columns.
        file: of published values.
        keys: the columns by which rows match.
        measures: the columns of the file that are shown; those that our table has get a ratio.
        differences: see `add_published_columns`.
        ours: likewise.
    """
    if table.empty:
        beside = read_published(file)[[*keys, *measures]].rename(
            columns={name: f"published_{name}" for name in measures}
        )
        columns = [name for name in table if name not in beside]
        absent_run = {"repeats_ok": 0, "ratio_reason": "no run of this point", "code_is_current": True}
        rest = pd.DataFrame(dict.fromkeys(columns, math.nan) | absent_run, index=beside.index)
        return pd.concat([beside, rest], axis=1)
    absent = {name: math.nan for name in measures if name not in table}
    table = add_published_columns(table.assign(**absent), file, keys, measures, differences, ours=ours)
    table = add_unmeasured_rows(table, file, keys, measures)
    return table.drop(columns=[*absent, *(f"ratio_{name}" for name in absent)])


def _make_network_rows(runs: pd.DataFrame, loading: pd.DataFrame, file: str, columns: list[str]) -> Rows:
    """The networks, one per row, with their parameters by the runs' records, by TF-Slim's layers, and as published.

    file: of published values. columns: its columns that are shown.
    """
    table = join_published(_parameters(runs), file, ["benchmark"], columns, lambda row: None)  # whatever the images
    table = table.drop(columns=[f"ratio_{name}" for name in columns if name != "parameters"], errors="ignore")
    return Rows(table.assign(trained_parameters=[slim_networks.parameters(name).all for name in table["benchmark"]]))


def _parameters(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per network: parameters do not depend on the point. Of several datasets each counts."""
    if runs.empty:
        return pd.DataFrame(columns=["benchmark", "dataset", "parameters"])
    table = points(runs, ["parameters"]).drop(columns=ci95_name("parameters"))
    counted = table[table["parameters"].notna()]
    return counted.drop_duplicates(["machine", "benchmark", "dataset", "parameters"], ignore_index=True)


_register_tables()
