"""Tables I to V of the Pittman paper beside this study's runs."""

import math

import pandas as pd

from study.compare import failed_runs
from study.experiment.ensemble import list_members
from study.records.names import runs_of
from study.records.power import note_modelled_power
from study.report.papers.declaration import load_paper
from study.report.papers.published_tables import join_published
from study.report.papers.workload import workload_difference
from study.report.tables.declared import Rows, load_declarations, table_rows
from study.report.tables.ensembles import (
    DUPLICATED,
    gives_rates,
    has_ensembles,
    is_of_members,
    training_runs,
)
from study.report.tables.point_comparisons import add_comparisons
from study.report.tables.published_values import read_published
from study.report.tables.summary import points

RUNTIME, ONE_CORE = "pittman2018_table1_runtime.csv", "pittman2018_table3_one_core.csv"
CABINET, POWER = "pittman2018_table4_cabinet.csv", "pittman2018_table5_power.csv"
LARGEST_16_BIT = 2**15 - 1
DIFFERENCE = workload_difference("pittman2018")
TIMES = ["mean_s", "std_s", "min_s", "max_s"]


def _number(name: str, **names: str) -> float:
    """One of the paper's numbers, see its claims.yaml."""
    return float(load_paper("pittman2018").published.number(name, **names))


@table_rows("pittman2018_table1", uses=is_of_members, is_there=has_ensembles)
def table1(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table I: training time of duplicated pipelines by number of members, and its ratio to one member's."""
    trained = training_runs(runs)
    trained = trained[trained["input_sharing"].eq(DUPLICATED)] if len(trained) else trained
    ours = _average_points(trained, "training_s", "ensemble")
    spread = [_spread(runs_of(trained, records)) for records in ours["records"]]
    ours = ours.join(pd.DataFrame(spread, columns=TIMES[1:], index=ours.index))
    ours["are_copies"] = [_are_copies(row) for _, row in ours.iterrows()]
    ours = add_comparisons(load_declarations()["pittman2018_table1"], ours, trained).drop(columns="are_copies")
    ours = ours.rename(columns={"training_s": "mean_s", "training_ci95_s": "mean_ci95_s"})
    table = join_published(ours, RUNTIME, ["ensemble", "benchmark"], ["times", *TIMES], _describe_difference)
    table = table.drop(columns=[f"ratio_{name}" for name in TIMES[1:] if f"ratio_{name}" in table])
    table = table.sort_values(["benchmark", "ensemble"], ignore_index=True).astype({"published_times": "Int64"})
    return Rows(table, [_no_difference()])


@table_rows(
    "pittman2018_table3",
    uses=gives_rates,
    is_there=lambda study: has_ensembles(study) and any(run["core_limit"] for run in study.runs),
)
def table3(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table III: training time under a core limit over that of the same ensemble with all cores."""
    trained = training_runs(runs)
    every = _average_points(trained, "training_s", "core_limit")
    every = add_comparisons(load_declarations()["pittman2018_table3"], every, trained)
    ours = every[every["core_limit"] > 0]
    keys = ["input_sharing", "benchmark", "core_limit"]
    table = join_published(ours, ONE_CORE, keys, ["slowdown"], DIFFERENCE)
    table = table.sort_values(["benchmark", *keys[::2]], ascending=[True, True, False], ignore_index=True)
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


@table_rows("pittman2018_table5", uses=gives_rates, is_there=has_ensembles)
def table5(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table V: mean power of a node by way of sharing, and what it saves against duplicated pipelines."""
    trained = training_runs(runs)
    several = trained[trained["ensemble"].gt(1) & trained["core_limit"].eq(0)] if len(trained) else trained
    ours = _average_points(several, "node_power_w", "input_sharing")
    ours = add_comparisons(load_declarations()["pittman2018_table5"], ours, several)
    measures = ["cabinet_w", "cabinet_above_idle_w", "savings_pct"]
    table = join_published(ours, POWER, ["input_sharing", "benchmark"], measures, DIFFERENCE)
    has_savings = table["published_savings_pct"].notna()
    table["published_saved_pct"] = [
        _number("saved_pct", benchmark=name) if there else math.nan
        for name, there in zip(table["benchmark"], has_savings, strict=True)
    ]
    table = table.sort_values(["benchmark", "input_sharing"], ascending=[True, False], ignore_index=True)
    idle = f"cabinet_above_idle_w is cabinet_w less the {_number('idle_w'):.0f} W of the idle cabinet (Table IV)"
    return Rows(table, [idle])


def _no_difference() -> str:
    """What Table I shows, in words."""
    difference, error, half = (
        _number(name) for name in ("difference_of_means", "error_of_means", "half_interval_of_means")
    )
    return (
        f"published: 1,000 nodes less solo: {difference:.1f} s, 95 % interval {difference - half:.2f} to "
        f"{difference + half:.2f} s (Welch's t = {abs(difference) / error:.2f}): no difference shown"
    )


def _average_points(runs: pd.DataFrame, measure: str, key: str) -> pd.DataFrame:
    """One row per point with the mean of a measure; without runs an empty table, with the column of a grid key."""
    if len(runs):
        return points(runs, [measure])
    return pd.DataFrame(columns=["machine", "benchmark", *dict.fromkeys(("ensemble", key)), measure, "records"])


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
    if (steps := _steps(row)) != (theirs := _number("steps_of_table1")):
        return f"{steps:,.0f} steps instead of {theirs:,.0f}"
    return DIFFERENCE(row)


def _steps(row: pd.Series) -> float:
    """Training steps of a run of one member."""
    return row["epochs_per_rank"] * math.ceil(row["train_samples"] / row["batch_size_per_rank"])


def _spread(repeats: pd.DataFrame) -> tuple[float, float, float]:
    """Standard deviation, least and most of the repeats' training times."""
    times = failed_runs.keep_proven(repeats)["training_s"]
    return float(times.std()), float(times.min()), float(times.max())
