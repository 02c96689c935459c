"""The tables of the ICPP 2019 paper, as measured by this study's runs."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.compare import failed_runs
from study.core.statistics import summarize
from study.core.units import MIB_IN_MB
from study.data.loaders import LOADERS
from study.records.names import join_records
from study.report.papers.workload import file_difference
from study.report.tables.declared import Rows, table_rows
from study.report.tables.layout import ci95_name
from study.report.tables.published_values import add_published_columns, read_published

BASE = "read_csv"  # the paper's original loader
FILE = ["machine", "benchmark", "dataset", "file", "split", "page_cache"]  # columns that name what is loaded
POINT = [*FILE[:5], "rows", "columns", "size_mb", "page_cache", "loader"]
MEASURES = ("load_s", "peak_memory_mb")
OF_LOADS = ["repeats_ok", "repeats_failed", "failures", "code_is_current", "records"]
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
    loading = loading[loading["loader"].isin(list(LOADERS))]  # images have their own table
    groups = loading.groupby(POINT, sort=False, dropna=False) if len(loading) else ()
    rows = [dict(zip(POINT, key, strict=True)) | _average_loads(group) for key, group in groups]
    means = [name for measure in MEASURES for name in (measure, ci95_name(measure))]
    table = pd.DataFrame(rows, columns=[*POINT, *means, *OF_LOADS]).astype({"split": object})
    good = failed_runs.keep_proven(loading)
    pairs = good.merge(good[good["loader"] == BASE], on=[*FILE, "repeat"], suffixes=("", "_base"))
    pairs["speedup"] = pairs["load_s_base"] / pairs["load_s"]
    speedups = pairs[pairs["loader"] != BASE].groupby([*FILE, "loader"], dropna=False)["speedup"].median()
    table = table.merge(speedups.reset_index(), how="left", on=[*FILE, "loader"])
    keys = ["benchmark", "split", "loader"]
    for machine, file in MACHINES.items():
        table = add_published_columns(table, file, keys, ["load_s"], file_difference, f"{machine}_")
        published = read_published(file).set_index(keys)["load_s"]
        ratios = published.xs(BASE, level="loader").div(published).drop(BASE, level="loader")
        table = table.join(ratios.rename(f"published_{machine}_speedup"), on=keys)
    reasons = loading["cold_reason"].dropna().unique() if "cold_reason" in loading else ()
    return Rows(table, [f"no cold loads: {reason}" for reason in reasons])


def _average_loads(group: pd.DataFrame) -> dict[str, object]:
    """The mean of each measure over the repeats, and how many there are."""
    failed = int((group["status"] != "ok").sum())
    row: dict[str, object] = {
        "repeats_ok": len(group) - failed,
        "repeats_failed": failed,
        "failures": "; ".join(group["message"].dropna().unique()) or None,
        "code_is_current": bool(group["code_is_current"].all()),
        "records": join_records(group["record"]),
    }
    for measure in MEASURES:
        sample = summarize(failed_runs.keep_proven(group)[measure])
        row |= {measure: sample.mean, ci95_name(measure): sample.ci95}
    return row
