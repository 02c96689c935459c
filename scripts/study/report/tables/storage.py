"""Our own table: the same training from different storage, beside the read test of that storage."""

from __future__ import annotations

import pandas as pd

import study.report.tables.kinds as kinds
from study.records import read_tests
from study.records.arms import SPEED as STEADY
from study.records.names import runs_of
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

OF_COPIES = ["stage_s", "staged_mb", "node_read_mb", "node_storage_read_mb"]
MEASURES = ["throughput_samples_per_s", STEADY, "load_s", "train_s", "shared_read_mb", "storage_read_mb", *OF_COPIES,
            "runtime_s"]  # fmt: skip


@kinds.table(
    "storage",
    title="Training from different storage",
    look_for="Whether a faster storage shortens loading or training, and how the times spread. Where storage_read_mb "
    "is 0 (of a storage on each node: node_storage_read_mb), the files came from the page cache, and a difference says "
    "nothing about the storage.",
    needs="runs with storage other than none",
    uses=kinds.runs(),
    is_there=lambda study: any(run["storage"] != "none" for run in study.runs),
    compares_runs=True,
    reads_storage=True,
)
def storage(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per point: throughput, spread, and bytes read; beside it the read test of its storage."""
    table = points(runs, MEASURES)
    table["train_spread_pct"] = [_spread(runs_of(runs, records)) for records in table["records"]]
    table = table.join(runs.groupby("storage")[read_tests.COLUMNS].first(), on="storage")
    table = table.sort_values(["benchmark", "dataset", "loader", "gpus", "storage"], ignore_index=True)
    means = [name for name in read_tests.COLUMNS if "_ci95_" not in name]
    shown = ["benchmark", "dataset", "loader", "gpus", "storage", *MEASURES[:4], "train_spread_pct", *MEASURES[4:],
             *means, "repeats_ok", "repeats_failed", "failures", "oversubscribed"]  # fmt: skip
    caption = (
        "Training from the folders of the machine's file; storage none is data_dir. The runs do not empty the page "
        "cache. train_spread_pct: 100 x (longest / shortest - 1) of train_s over the repeats. shared_read: MB that "
        "all ranks together read from the files; of a storage on each node, for copying. storage_read: the part of "
        "shared_read that storage had to give. stage: seconds of loading until the slowest rank had its node's "
        "copies, of a storage on each node. The next three are of such a storage too. staged: MB copied to all nodes "
        "together. node_read: MB read from these copies. node_storage_read: the part of node_read that the nodes' "
        "storage had to give. read_test: one file of that storage read in sequence by scripts/read_storage.py, at "
        "another time than the runs, from a cold and from a warm page cache. The cold value may come from the cache "
        "of a disk or a server."
    )
    optional = (*optional_columns(shown), *means, *OF_COPIES)
    return Table("storage", caption, table, shown, optional, notes(table, "values"), IDENTITY)


def _spread(runs: pd.DataFrame) -> float | None:
    """Of the times in training; one run has none."""
    times = runs.loc[runs["status"] == "ok", "train_s"].dropna()
    return float(100 * (times.max() / times.min() - 1)) if len(times) > 1 else None
