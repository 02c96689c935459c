"""Tables of storage and formats: reading, loading and converting, of tables and images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from study import workloads
from study.compare import failed_runs
from study.core import configuration
from study.core.statistics import summarize
from study.experiment.study import Study
from study.records.names import join_records
from study.report.tables.declared import Rows, load_declarations, table_rows


def _make_rows(
    table: str,
    loading: pd.DataFrame,
    keys: list[str],
    make_row: Callable[[dict[str, Any], pd.DataFrame], dict[str, Any]],
    further: list[str],
) -> Rows:
    """One row of a declared table for each value of ``keys``. further: columns besides the declared ones."""
    rows = [
        make_row(dict(zip(keys, key, strict=True)), group)
        for key, group in loading.groupby(keys, sort=False, dropna=False)
    ]
    declared = load_declarations()[table]["columns"]
    return Rows(pd.DataFrame(rows, columns=[*declared, "dataset", *further, "code_is_current", "records"]))


IMAGE_KEYS = ["machine", "benchmark", "dataset", "file", "rows", "size_mb", "page_cache", "loader"]


def measures_images(study: Study) -> bool:
    """Whether a study measures a loader on images."""
    return any(form.get("kind") == "images" for entry in study.loading for form in entry.dataset.spec["files"].values())


def is_of_images(loading: pd.DataFrame) -> pd.Series:
    """Which loads, failed ones too, are of images: decoding was measured of the file, or the benchmark's are images."""
    if loading.empty:
        return pd.Series(False, index=loading.index)
    decoded = loading.get("decode_s", pd.Series(index=loading.index, dtype=float)).notna()
    of_file = decoded.groupby([loading[name] for name in ("benchmark", "dataset", "file")]).transform("any")
    others = loading.loc[~of_file, "benchmark"].unique()
    return of_file | loading["benchmark"].isin([name for name in others if _has_images(name)])


def _has_images(benchmark: str) -> bool:
    """Whether the samples of a benchmark are images; no for one that is not here, but in another machine's results."""
    if benchmark not in configuration.list_files("benchmarks"):
        return False
    return workloads.load_workload(benchmark, configuration.load_named("benchmarks", benchmark)).kind == "images"


@table_rows("image_formats", is_there=measures_images)
def image_formats(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per file and format: seconds and images per second, to read, and to read and decode."""
    chosen = loading[is_of_images(loading)]
    return _make_rows("image_formats", chosen, IMAGE_KEYS, _image_row, ["read_ci95_s", "decode_ci95_s"])


def _image_row(row: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    ok = failed_runs.keep_proven(group)
    row["images"], row["encoded_mb"], row["format"] = row.pop("rows"), row.pop("size_mb"), row.pop("loader")
    for name, column in (("read", "load_s"), ("decode", "decode_s")):
        sample = summarize(ok[column])
        row[f"{name}_s"], row[f"{name}_ci95_s"] = sample.mean, sample.ci95
    row["read_images_per_s"] = row["images"] / row["read_s"]
    row["decoded_images_per_s"] = row["images"] / row["decode_s"]
    row["time_per_image_s"] = row["decode_s"] / row["images"]
    row["decoder_per_image_s"] = summarize(ok["decoder_s"]).mean / row["images"]
    return row | summarize_loads(group)


def summarize_loads(group: pd.DataFrame) -> dict[str, Any]:
    """The columns of a row that describe the loads behind it. group: the loads, failed ones too."""
    failed = int((group["status"] != "ok").sum())
    return {
        "repeats_ok": len(group) - failed,
        "repeats_failed": failed,
        "failures": "; ".join(group["message"].dropna().unique()) or None,
        "code_is_current": bool(group["code_is_current"].all()),
        "records": join_records(group["record"]),
    }
