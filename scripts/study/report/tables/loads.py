"""Tables of loading measurements: a row per file and loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from study.compare import failed_runs
from study.core.statistics import summarize
from study.records.names import join_records
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
