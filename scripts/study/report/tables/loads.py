"""Tables of loading measurements: a row per file and loader, and the table of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from study import workloads
from study.compare import failed_runs
from study.core import configuration
from study.core.statistics import summarize
from study.experiment.study import Study
from study.records.names import join_records
from study.report.tables.declared import Rows, finish_rows, load_declarations, table_rows
from study.report.tables.layout import ci95_name


def average_loads(declaration: Mapping[str, Any], loading: pd.DataFrame) -> pd.DataFrame:
    """One row per value of the declared keys: the mean of each declared measure, and what describes the loads."""
    keys, measures = declaration["loads"]["keys"], declaration["loads"]["measures"]
    rows = []
    for key, group in loading.groupby(keys, sort=False, dropna=False) if len(loading) else ():
        row = dict(zip(keys, key, strict=True))
        for measure in measures:
            sample = summarize(failed_runs.keep_proven(group)[measure])
            row |= {measure: sample.mean, ci95_name(measure): sample.ci95}
        failed = int((group["status"] != "ok").sum())
        rows.append(
            row | {
                "repeats_ok": len(group) - failed,
                "repeats_failed": failed,
                "failures": "; ".join(group["message"].dropna().unique()) or None,
                "code_is_current": bool(group["code_is_current"].all()),
                "records": join_records(group["record"]),
            }
        )  # fmt: skip
    told = ("repeats_ok", "repeats_failed", "failures", "code_is_current", "records")
    means = [name for measure in measures for name in (measure, ci95_name(measure))]
    return pd.DataFrame(rows, columns=[*keys, *means, *told])


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
    declaration = load_declarations()["image_formats"]
    return finish_rows(declaration, average_loads(declaration, loading[is_of_images(loading)]), loading)
