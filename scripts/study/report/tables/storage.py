"""Our own table: the same training from different storage, beside the read test of that storage."""

from __future__ import annotations

import pandas as pd

from study.records import read_tests
from study.records.names import runs_of
from study.records.tidy import STEADY
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import points

OF_COPIES = ["stage_s", "staged_mb", "node_read_mb", "node_storage_read_mb"]
MEASURES = ["throughput_samples_per_s", STEADY, "load_s", "train_s", "shared_read_mb", "storage_read_mb", *OF_COPIES,
            "runtime_s"]  # fmt: skip


@table_rows("storage")
def storage(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point: throughput, spread, and bytes read; beside it the read test of its storage."""
    table = points(runs, MEASURES)
    table["train_spread_pct"] = [_spread(runs_of(runs, records)) for records in table["records"]]
    table = table.join(runs.groupby("storage")[read_tests.COLUMNS].first(), on="storage")
    table = table.sort_values(["benchmark", "dataset", "loader", "gpus", "storage"], ignore_index=True)
    return Rows(table)


def _spread(runs: pd.DataFrame) -> float | None:
    """Of the times in training; one run has none."""
    times = runs.loc[runs["status"] == "ok", "train_s"].dropna()
    return float(100 * (times.max() / times.min() - 1)) if len(times) > 1 else None
