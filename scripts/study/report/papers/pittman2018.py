"""Tables I and IV of the Pittman paper beside this study's runs; its others are declared."""

import math
from typing import Any

import pandas as pd

from study.compare import failed_runs
from study.experiment.ensemble import list_members
from study.experiment.parameters import is_observed
from study.records.names import runs_of
from study.records.power import note_modelled_power
from study.report import formulas
from study.report.papers.declaration import load_paper
from study.report.papers.published_tables import join_published
from study.report.papers.workload import workload_difference
from study.report.tables.declared import Rows, load_declarations, table_rows
from study.report.tables.ensembles import DUPLICATED, gives_rates, has_ensembles, is_of_members
from study.report.tables.point_comparisons import add_comparisons
from study.report.tables.published_values import read_published
from study.report.tables.summary import points

RUNTIME, CABINET = "pittman2018_table1_runtime.csv", "pittman2018_table4_cabinet.csv"
LARGEST_16_BIT = 2**15 - 1
DIFFERENCE = workload_difference("pittman2018")
TIMES = ["mean_s", "std_s", "min_s", "max_s"]


def _is_duplicated(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, times members that each preprocess their own samples."""
    return is_of_members(run) and is_observed(run, None) and run["input_sharing"] == DUPLICATED


@table_rows("pittman2018_table1", uses=_is_duplicated, is_there=has_ensembles)
def table1(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table I: training time of duplicated pipelines by number of members, and its ratio to one member's."""
    declaration = load_declarations()["pittman2018_table1"]
    ours = pd.DataFrame(columns=["machine", "benchmark", "ensemble", "training_s", "records"])
    if len(runs):
        runs = formulas.add_columns(runs, declaration["run_columns"])
        ours = points(runs, ["training_s"])
    spread = [_spread(runs_of(runs, records)) for records in ours["records"]]
    ours = ours.join(pd.DataFrame(spread, columns=TIMES[1:], index=ours.index))
    ours["are_copies"] = [_are_copies(row) for _, row in ours.iterrows()]
    ours = add_comparisons(declaration, ours, runs).drop(columns="are_copies")
    ours = ours.rename(columns={"training_s": "mean_s", "training_ci95_s": "mean_ci95_s"})
    table = join_published(ours, RUNTIME, ["ensemble", "benchmark"], ["times", *TIMES], _describe_difference)
    table = table.drop(columns=[f"ratio_{name}" for name in TIMES[1:] if f"ratio_{name}" in table])
    table = table.sort_values(["benchmark", "ensemble"], ignore_index=True).astype({"published_times": "Int64"})
    return Rows(table)


@table_rows("pittman2018_table4", uses=gives_rates, is_there=has_ensembles)
def table4(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table IV: idle and highest power of a cabinet as published, and the highest mean power of a node in our runs."""
    cells = read_published(CABINET)
    printed = [name for name in cells if name != "machine"]
    table = cells.rename(columns={name: f"published_{name}" for name in printed})
    table["published_idle_share_pct"] = 100 * cells["idle_w"] / cells["highest_w"]
    table["published_idle_deviation_w"] = cells["idle_variance_w2"].map(math.sqrt)
    table["published_highest_over_16_bits"] = cells["highest_w"] / LARGEST_16_BIT
    good = failed_runs.keep_proven(runs) if len(runs) else runs
    ours = [
        {"machine": name, "highest_node_power_w": group["node_power_w"].max(), "runs": len(group)}
        for name, group in (good.groupby("machine") if len(good) else ())
    ]
    table = pd.concat([table, pd.DataFrame(ours, columns=["machine", "highest_node_power_w", "runs"])])
    table = table.astype({"runs": "Int64", "highest_node_power_w": float}).reset_index(drop=True)
    return Rows(table, note_modelled_power(good["power_source"], "power", "is") if len(good) else ())


def _are_copies(row: pd.Series) -> bool:
    """Whether the members of a point train what one of them would train alone: one network, one size of batch."""
    members = list_members({"ensemble": int(row["ensemble"]), "members": row["members"]})
    return not any(each.model or each.batch_size for each in members)


def _describe_difference(row: pd.Series) -> str | None:
    """How a point differs from Table I, in words, or None; its times of several members are those of one job."""
    if row["ensemble"] > 1:
        return "times of repeats instead of times of the members of one job"
    if not row["repeats_ok"]:
        return DIFFERENCE(row)
    theirs = float(load_paper("pittman2018").published.number("steps_of_table1"))
    if (steps := _steps(row)) != theirs:
        return f"{steps:,.0f} steps instead of {theirs:,.0f}"
    return DIFFERENCE(row)


def _steps(row: pd.Series) -> float:
    """Training steps of a run of one member."""
    return row["epochs_per_rank"] * math.ceil(row["train_samples"] / row["batch_size_per_rank"])


def _spread(repeats: pd.DataFrame) -> tuple[float, float, float]:
    """Standard deviation, least and most of the repeats' training times."""
    times = failed_runs.keep_proven(repeats)["training_s"]
    return float(times.std()), float(times.min()), float(times.max())
