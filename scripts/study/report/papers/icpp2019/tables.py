"""The tables of the ICPP 2019 paper, as measured by this study's runs."""

import math
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.compare import estimates, failed_runs
from study.core.statistics import summarize
from study.core.units import MIB_IN_MB
from study.data.loaders import LOADERS
from study.instruments.power.readings import MODELLED
from study.records.names import join_records
from study.records.power import WHOLE_RUN
from study.report.papers.published_tables import window_notes
from study.report.papers.workload import file_difference, workload_difference
from study.report.tables.declared import Rows, load_declarations, table_rows
from study.report.tables.layout import ci95_name
from study.report.tables.published_values import add_published_columns, read_published
from study.report.tables.summary import POINT, WORKLOAD, count_kinds, points

DIFFERENCE = workload_difference("icpp2019")
BASE, OPTIMIZED = "read_csv", "chunked"  # the paper's original loader and its improved one
MACHINES = {"summit": "icpp2019_table3_loading_summit.csv", "theta": "icpp2019_table4_loading_theta.csv"}


@table_rows("icpp2019_table1", uses=kinds.any_run)
def table1(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table 1: sizes, epochs, batch size, learning rate, optimizer and samples of each benchmark, as run.

    A ratio is ours / published. It stands for itself: here the workload is what is compared.
    """
    keys = ["machine", "benchmark", "dataset", "scaling", "epochs", "batch_size", "learning_rate"]
    measures = ["train_mb", "test_mb", "optimizer", "train_samples", "features"]
    groups = runs.groupby(keys, sort=False, dropna=False)  # a command has no learning rate
    table = (
        groups[measures]
        .first()
        .assign(records=groups["record"].agg(join_records), code_is_current=groups["code_is_current"].all())
        .reset_index()
    )
    paper = read_published("icpp2019_table1_benchmarks.csv").rename(columns={"elements_per_sample": "features"})
    paper = paper.assign(**{f"{split}_mb": paper[f"{split}_mib"] * MIB_IN_MB for split in ("train", "test")})
    beside = ["train_mb", "test_mb", "epochs", "batch_size", "learning_rate", "train_samples", "features"]
    table = table.join(paper.set_index("benchmark")[beside].add_prefix("published_"), on="benchmark")
    table["published_epochs"] = table["published_epochs"].where(table["scaling"] != "weak")  # which Table 1 lacks
    for name in beside:
        table[f"ratio_{name}"] = table[name] / table[f"published_{name}"]
    table = table.astype(
        {
            name: "Int64"
            for name in table
            if name.endswith(("_samples", "features", "_epochs", "size")) and not name.startswith("ratio_")
        }
    )
    return Rows(table)


@table_rows("icpp2019_table3")
def table3(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Tables 3 and 4: time to load each file by loader, and the speedup over ``read_csv``."""
    keys = ["machine", "benchmark", "dataset", "file", "split", "rows", "columns", "size_mb", "page_cache"]
    loading = loading[loading["loader"].isin(list(LOADERS))]  # images have their own table
    loaders = list(loading["loader"].unique())
    rows = [
        _loading_row(dict(zip(keys, key, strict=True)), group, loaders)
        for key, group in loading.groupby(keys, sort=False, dropna=False)
    ]
    names = (lambda name: f"{name}_s", lambda name: ci95_name(f"{name}_s"), lambda name: f"{name}_peak_memory_mb")
    columns = [name(loader) for name in names for loader in loaders]
    columns += [f"speedup_{loader}" for loader in loaders if loader != BASE]
    table = pd.DataFrame(
        rows,
        columns=[
            *keys,
            *columns,
            "repeats_ok",
            "repeats_failed",
            "failures",
            "cold_reason",
            "code_is_current",
            "records",
        ],
    )
    measures = [f"{loader}_s" for loader in (BASE, OPTIMIZED) if loader in loaders]
    table["split"] = table["split"].astype(object)
    beside = []
    for machine, file in MACHINES.items():
        table = add_published_columns(table, file, ["benchmark", "split"], measures, file_difference, f"{machine}_")
        speedup = f"published_{machine}_speedup_chunked"
        if len(measures) == 2:
            table[speedup] = table[f"published_{machine}_{BASE}_s"] / table[f"published_{machine}_{OPTIMIZED}_s"]
        beside += [f"{kind}_{machine}_{measure}" for kind in ("published", "ratio") for measure in measures]
        beside += [speedup] * (len(measures) == 2)
    of_loaders = [*(f"{name}_s" for name in loaders), *(name for name in table if name.startswith("speedup_")), *beside]
    declared = load_declarations()["icpp2019_table3"]["columns"]
    place = declared.index("repeats_ok")
    columns_shown = [*declared[:place], *of_loaders, *declared[place:]]
    reasons = [f"no cold loads: {reason}" for reason in table["cold_reason"].dropna().unique()]
    return Rows(table, reasons, columns=columns_shown)


def _loading_row(row: dict[str, Any], group: pd.DataFrame, loaders: list[str]) -> dict[str, Any]:
    ok = failed_runs.keep_proven(group)
    failed = group[group["status"] != "ok"]
    times = ok.pivot(index="repeat", columns="loader", values="load_s").reindex(columns=loaders)
    for loader in loaders:
        if loader not in set(group["loader"]):
            continue
        sample = summarize(times[loader])
        row[f"{loader}_s"], row[ci95_name(f"{loader}_s")] = sample.mean, sample.ci95
        row[f"{loader}_peak_memory_mb"] = ok.loc[ok["loader"] == loader, "peak_memory_mb"].max()
        if loader != BASE and BASE in loaders:
            row[f"speedup_{loader}"] = (times[BASE] / times[loader]).median()
    measured = group["loader"].unique()
    row["repeats_ok"] = int(times[measured].notna().all(axis=1).sum())
    row["repeats_failed"] = group["repeat"].nunique() - row["repeats_ok"]
    row["cold_reason"] = group["cold_reason"].iloc[0]
    row["code_is_current"] = bool(group["code_is_current"].all())
    row["records"] = join_records(group["record"])
    row["failures"] = count_kinds(failed["loader"])
    return row


@table_rows("icpp2019_table5")
def table5(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table 5: power and energy per GPU under strong scaling, base and optimised loader, and the change in percent."""
    table = _base_beside_optimized(points(runs, list(POWER)), runs)
    measures = ["power_w", "power_optimized_w", "energy_per_gpu_j", "energy_optimized_per_gpu_j"]
    changes = ["power_change_pct", "energy_change_pct"]
    keys, file = ["benchmark", "scaling", "batch_size", "gpus"], "icpp2019_table5_nt3_power_energy.csv"
    table = add_published_columns(table, file, keys, measures, DIFFERENCE, ours=TABLE_5_ALIKE)
    table = table.join(read_published(file).set_index(keys)[changes].add_prefix("published_"), on=keys)
    return Rows(table, window_notes(runs))


POWER = {  # measured column: base, optimised, change
    "power_per_gpu_w": ("power_w", "power_optimized_w", "power_change_pct"),
    "energy_per_gpu_j": ("energy_per_gpu_j", "energy_optimized_per_gpu_j", "energy_change_pct"),
    "power_per_gpu_one_hz_w": ("power_one_hz_w", "power_optimized_one_hz_w", "power_one_hz_change_pct"),
    "energy_per_gpu_one_hz_j": (
        "energy_per_gpu_one_hz_j",
        "energy_optimized_per_gpu_one_hz_j",
        "energy_one_hz_change_pct",
    ),
    "whole_run_power_per_gpu_one_hz_w": (
        "whole_run_power_one_hz_w",
        "whole_run_power_optimized_one_hz_w",
        "whole_run_power_one_hz_change_pct",
    ),
    "whole_run_energy_per_gpu_one_hz_j": (
        "whole_run_energy_per_gpu_one_hz_j",
        "whole_run_energy_optimized_per_gpu_one_hz_j",
        "whole_run_energy_one_hz_change_pct",
    ),
}


# {column of Table 5: ours at the paper's rate and in its window}.
TABLE_5_ALIKE = {
    usual: alike
    for ours in ("power_per_gpu_w", "energy_per_gpu_j")
    for usual, alike in zip(POWER[ours][:2], POWER[f"{WHOLE_RUN}{ours[:-2]}_one_hz{ours[-2:]}"][:2], strict=True)
}
ALL_OR_ANY = {"code_is_current": "min", "oversubscribed": "max"}  # of what either side says


def _ends(change: str) -> list[str]:
    """The columns of the interval of a change: ``energy_change_low_pct``."""
    return [change.replace("_pct", f"_{end}_pct") for end in ("low", "high")]


def _base_beside_optimized(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """One row per point for both loaders, with the paper's columns of Table 5; a loader without runs stays empty."""
    base, optimized = (table[table["loader"] == loader].drop(columns="loader") for loader in (BASE, OPTIMIZED))
    same = [name for name in POINT if name != "loader"]
    table = base.merge(optimized, on=same, how="outer", suffixes=("", "_other"))
    modelled = (table[["power_source", "power_source_other"]] == MODELLED).any(axis=1)
    for column in ("power_reason", "power_source", "may_fail", "repeats_unlike", *WORKLOAD):
        table[column] = table[column].combine_first(table[f"{column}_other"])
    table["power_source"] = table["power_source"].mask(modelled, MODELLED)  # of either side
    for column in ("repeats_failed", "code_is_current", "oversubscribed"):
        both = table[[column, f"{column}_other"]].apply(pd.to_numeric)
        table[column] = both.sum(axis=1) if column == "repeats_failed" else both.agg(ALL_OR_ANY[column], axis=1) > 0
    table["failures"] = table[["failures", "failures_other"]].apply(lambda both: "; ".join(both.dropna()), axis=1)
    table["repeats_optimized_ok"] = table["repeats_ok_other"].fillna(0).astype(int)
    table["repeats_ok"] = table["repeats_ok"].fillna(0).astype(int)
    changes = pd.DataFrame([_changes(row, runs) for _, row in table.iterrows()], index=table.index)
    sides = {name: table[column] for name, column in _sides().items()}
    table["records"] = table[["records", "records_other"]].apply(lambda both: join_records(both.dropna()), axis=1)
    table = table.assign(**sides, **{name: changes[name] for name in changes})
    columns = [*same, *WORKLOAD, *sides, *changes]
    columns += ["repeats_ok", "repeats_optimized_ok", "repeats_failed", "failures", "may_fail", "power_source"]
    columns += ["power_reason", "oversubscribed", "code_is_current", "repeats_unlike", "records"]
    return table[columns].sort_values(["benchmark", "batch_size", "gpus"], ignore_index=True)


def _sides() -> dict[str, str]:
    """The measured columns of Table 5 with their intervals: {its name: the column of the merged points}."""
    return {
        name_column(name): f"{name_column(measured)}{end}"
        for measured, names in POWER.items()
        for name, end in zip(names[:2], ("", "_other"), strict=True)
        for name_column in (str, ci95_name)
    }


def _changes(row: pd.Series, runs: pd.DataFrame) -> dict[str, Any]:
    """The change of each measure from base to optimised, %, with its interval; NaN where one has no mean."""
    changes: dict[str, Any] = {"pairing": None}
    ratios: dict[str, estimates.Estimate] = {}
    for measured, (_, _, change) in POWER.items():
        names = [change, *_ends(change)]
        changes |= dict.fromkeys(names, math.nan)
        if row[[measured, f"{measured}_other"]].notna().all():
            ratio = estimates.compare_rows(runs, row["records_other"], row["records"], measured)
            changes |= dict(zip(names, (100 * (end - 1) for end in ratio.numbers), strict=True))
            changes["pairing"] = changes["pairing"] or ratio.pairing
            changes["blocks_unlike"] = changes.get("blocks_unlike") or ratio.unlike
            ratios[change] = ratio
    return changes | {"blocks_alike": estimates.describe_fewer_blocks(ratios)}
