"""The tables of the ICPP 2019 paper, as measured by this study's runs."""

import pandas as pd

from study.statistics import summarize
from study.tables.layout import Table
from study.tables.summary import (
    beside_published,
    notes,
    optional_columns,
    points,
    shape_difference,
    workload_difference,
)

STEADY = "time_per_epoch_steady_s"  # without the first epoch, in which TensorFlow builds its graph


def table2(runs, loading):
    """Table 2: time per epoch and average GPU power under strong scaling, with the original loader."""
    measures = ["time_per_epoch_s", "power_per_gpu_w"]
    chosen = runs[(runs["scaling"] == "strong") & (runs["loader"] == "read_csv") & ~runs["trace"].astype(bool)]
    table = points(chosen, [*measures, STEADY]).sort_values(["benchmark", "batch_size", "gpus"], ignore_index=True)
    keys = ["benchmark", "scaling", "batch_size", "gpus"]
    table = beside_published(table, "icpp2019_table2_nt3_strong.csv", keys, measures, workload_difference)
    shown = ["machine", "benchmark", "scaling", "batch_size", "gpus", "epochs_per_rank", "time_per_epoch_s", STEADY,
             "published_time_per_epoch_s", "ratio_time_per_epoch_s", "power_per_gpu_w", "published_power_per_gpu_w",
             "ratio_power_per_gpu_w", "repeats_ok", "repeats_failed", "failures", "oversubscribed"]  # fmt: skip
    caption = "time per epoch and average power per GPU, strong scaling; published: icpp2019, Table 2 (Summit)."
    return Table(
        "icpp2019_table2", caption, _first(table, shown), shown, optional_columns(shown), notes(table, "values")
    )


def table3(runs, loading):
    """Table 3: time to load each file by loader, and how many times faster than ``read_csv``."""
    keys = ["machine", "benchmark", "dataset", "split", "samples", "features", "size_mb", "page_cache"]
    loaders = list(loading["loader"].unique())
    rows = [
        _loading_row(dict(zip(keys, key, strict=True)), group, loaders)
        for key, group in loading.groupby(keys, sort=False)
    ]
    columns = [f"{loader}{suffix}" for suffix in ("_s", "_ci95_s", "_peak_memory_mb") for loader in loaders]
    columns += [f"speedup_{loader}" for loader in loaders if loader != "read_csv"]
    table = pd.DataFrame(rows, columns=[*keys, *columns, "repeats_ok", "repeats_failed", "failures", "code_is_current"])
    measures = [f"{loader}_s" for loader in ("read_csv", "chunked") if loader in loaders]
    table = beside_published(
        table, "icpp2019_table3_loading_summit.csv", ["benchmark", "split"], measures, shape_difference
    )
    if len(measures) == 2:
        table["published_speedup_chunked"] = table["published_read_csv_s"] / table["published_chunked_s"]
    beside = [column for column in table if column.startswith(("published_", "ratio_")) and column != "ratio_reason"]
    shown = ["machine", "benchmark", "split", "samples", "features", "size_mb", *(f"{name}_s" for name in loaders),
             *beside, *(c for c in table if c.startswith("speedup_")), "repeats_ok", "repeats_failed"]  # fmt: skip
    caption = (
        "seconds to load each file by loader, warm page cache; speedup: median over the repeats of read_csv's time "
        "divided by the loader's, paired; published: icpp2019, Table 3 (Summit)."
    )
    return Table(
        "icpp2019_table3", caption, _first(table, shown), shown, optional_columns(shown), notes(table, "times")
    )


def _loading_row(row, group, loaders):
    ok = group[group["status"] == "ok"]
    failed = group[group["status"] != "ok"]
    times = ok.pivot(index="repeat", columns="loader", values="load_s").reindex(columns=loaders)
    for loader in loaders:
        sample = summarize(times[loader])
        row[f"{loader}_s"], row[f"{loader}_ci95_s"] = sample.mean, sample.ci95
        row[f"{loader}_peak_memory_mb"] = ok.loc[ok["loader"] == loader, "peak_memory_mb"].max()
        if loader != "read_csv" and "read_csv" in loaders:
            row[f"speedup_{loader}"] = (times["read_csv"] / times[loader]).median()
    row["repeats_ok"] = int(times.notna().all(axis=1).sum())
    row["repeats_failed"] = len(failed)
    row["code_is_current"] = bool(group["code_is_current"].all())
    row["failures"] = "; ".join(f"{n} x {loader}" for loader, n in failed["loader"].value_counts().items()) or None
    return row


def table6(runs, loading):
    """Table 6: training accuracy, time per epoch and GPU power under weak scaling, base and optimised loader."""
    measures = ["accuracy", "time_per_epoch_s", "power_per_gpu_w"]
    chosen = runs[
        (runs["scaling"] == "weak") & runs["loader"].isin(["read_csv", "chunked"]) & ~runs["trace"].astype(bool)
    ]
    table = points(chosen, [*measures, STEADY])
    order = table["loader"].map({"read_csv": 0, "chunked": 1})
    table = (
        table.assign(order=order).sort_values(["benchmark", "order", "gpus"], ignore_index=True).drop(columns="order")
    )
    keys = ["benchmark", "scaling", "loader", "gpus"]
    table = beside_published(table, "icpp2019_table6_nt3_weak.csv", keys, measures, workload_difference)
    shown = ["machine", "benchmark", "scaling", "loader", "gpus"]
    for measure in measures:
        shown += [measure, *([STEADY] if measure == "time_per_epoch_s" else [])]
        shown += [f"published_{measure}", f"ratio_{measure}"]
    shown += ["repeats_ok", "repeats_failed", "failures", "oversubscribed"]
    caption = (
        "training accuracy, time per epoch and average power per GPU, weak scaling; read_csv is the paper's original "
        "loader, chunked its optimised one; published: icpp2019, Table 6 (Summit)."
    )
    return Table(
        "icpp2019_table6", caption, _first(table, shown), shown, optional_columns(shown), notes(table, "values")
    )


def _first(table, columns):
    """The table with ``columns`` first and all others after them."""
    return table[[*columns, *(column for column in table if column not in columns)]]
