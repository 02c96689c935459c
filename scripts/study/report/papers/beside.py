"""Tables of a paper: our points beside its published ones."""

import math
from collections.abc import Callable

import pandas as pd

from study.records.power import WHOLE_RUN
from study.report.papers import slim_networks
from study.report.tables.layout import ci95_name
from study.report.tables.published_values import beside_published, published, with_unmeasured
from study.report.tables.summary import points

# One rule for all papers: power and energy are compared in equal windows only.
WINDOW = (
    "power and energy of the paper are of the whole run, so ratios are of columns whole_run_; the others begin with "
    "load and end with evaluate (energy_window_s)"
)


def window_notes(runs: pd.DataFrame) -> list[str]:
    """What a reader needs to know of the windows of power, and why the whole run's is missing. runs: the tidy table."""
    reason = f"{WHOLE_RUN}power_reason"
    told = runs.loc[runs["status"] == "ok", reason].dropna().unique() if reason in runs else ()
    return [WINDOW, *(f"no power of the whole run: {each}" for each in told)]


def beside(
    table: pd.DataFrame,
    file: str,
    keys: list[str],
    measures: list[str],
    differences: Callable[[pd.Series], str | None],
) -> pd.DataFrame:
    """Our points beside the published ones, and a row for each of those without a run.

    Args:
        table: of `points`; without runs, an empty one with their columns.
        file: of published values.
        keys: the columns by which rows match.
        measures: the columns of the file that are shown; those that our table has get a ratio.
        differences: see `beside_published`.
    """
    if table.empty:
        beside = published(file)[[*keys, *measures]].rename(columns={name: f"published_{name}" for name in measures})
        columns = [name for name in table if name not in beside]
        told = {"repeats_ok": 0, "ratio_reason": "no run of this point", "code_is_current": True}
        rest = pd.DataFrame(dict.fromkeys(columns, math.nan) | told, index=beside.index)
        return pd.concat([beside, rest], axis=1)
    absent = {name: math.nan for name in measures if name not in table}
    table = beside_published(table.assign(**absent), file, keys, measures, differences)
    table = with_unmeasured(table, file, keys, measures)
    return table.drop(columns=[*absent, *(f"ratio_{name}" for name in absent)])


def networks(runs: pd.DataFrame, file: str, printed: list[str]) -> pd.DataFrame:
    """The networks, one per row, with their parameters by the runs' records, by TF-Slim's layers, and as published.

    file: of published values. printed: its columns that are shown.
    """
    table = beside(_parameters(runs), file, ["benchmark"], printed, lambda row: None)  # whatever the images
    return table.assign(trained_parameters=[slim_networks.parameters(name).all for name in table["benchmark"]])


def _parameters(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per network: parameters do not depend on the point. Of several datasets each counts."""
    if runs.empty:
        return pd.DataFrame(columns=["benchmark", "dataset", "parameters"])
    table = points(runs, ["parameters"]).drop(columns=ci95_name("parameters"))
    known = table[table["parameters"].notna()]
    return known.drop_duplicates(["machine", "benchmark", "dataset", "parameters"], ignore_index=True)
