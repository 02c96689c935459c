"""Our own table: the cost of each kind of staging, and its load on shared storage."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.records.names import split_records
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

COPIES = ["staged_mb", "node_read_mb", "node_storage_read_mb"]
MEASURES = ["load_s", "stage_s", "load_fastest_s", "shared_read_mb", "storage_read_mb", *COPIES, "runtime_s",
            "peak_memory_mb"]  # fmt: skip


@kinds.table(
    "staging",
    title="The way of the data to the ranks",
    look_for="How much the ranks ask of the file system that all nodes share, and what it costs in time when one "
    "rank reads for the others. On one host all nodes share one page cache and one set of cores.",
    needs="runs with staging other than none",
    uses=kinds.runs(),
    is_there=lambda study: any(run["staging"] != "none" for run in study.runs),
)
def staging(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per point: loading, the part of it in staging, and bytes requested by read() on shared storage."""
    nodes = runs.groupby("record")["nodes"].first()
    table = points(runs, MEASURES)
    table["nodes"] = table["records"].map(lambda records: nodes[split_records(records)[0]])
    table = table.sort_values(["benchmark", "dataset", "loader", "gpus", "staging"], ignore_index=True)
    shown = ["benchmark", "dataset", "loader", "gpus", "nodes", "staging", *MEASURES, "repeats_ok",
             "repeats_failed", "failures", "oversubscribed"]  # fmt: skip
    caption = (
        "Loading, and the bytes that it reads from shared storage. load: seconds of loading, of the slowest and of "
        "the fastest rank. stage: the part of loading that copies or broadcasts, and waits for it. shared_read: MB "
        "that all ranks together read from files that all nodes share, while loading and, of images, in training. It "
        "counts what the page cache gave; a mapped file counts whole on each rank that maps it. storage_read: the "
        "part of shared_read that storage had to give. staged: MB copied to all nodes together. node_read: MB read "
        "from these copies, while loading and, of images, in training. node_storage_read: the part of node_read that "
        "the nodes' storage had to give. peak_memory: of the rank that had most. staging: with none each rank reads; "
        "with local_copy one rank per node copies the files to the node's own storage; with node_broadcast one rank "
        "per node loads and broadcasts; with job_broadcast one rank of all."
    )
    optional = (*optional_columns(shown), *COPIES)
    return Table("staging", caption, table, shown, optional, notes(table, "values"), IDENTITY)
