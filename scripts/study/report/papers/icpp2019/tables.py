"""The tables of the ICPP 2019 paper, as measured by this study's runs."""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.compare import failed_runs
from study.core.statistics import summarize
from study.core.units import MIB_IN_MB
from study.data.loaders import LOADERS
from study.records.names import join_records
from study.report.papers.workload import file_difference, workload_difference
from study.report.tables.declared import Rows, load_declarations, table_rows
from study.report.tables.layout import ci95_name
from study.report.tables.published_values import add_published_columns, read_published
from study.report.tables.summary import count_kinds

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
