"""Our own table: what the ways of the files to the ranks cost, and how much they ask of the shared file system."""

from study.report.tables.layout import Table
from study.report.tables.summary import VARIED, notes, optional_columns, points, timed

MEASURES = ["load_s", "stage_s", "load_fastest_s", "shared_read_mb", "storage_read_mb", "runtime_s", "peak_memory_mb"]


def staging(runs, loading):
    """A row a point: loading, of that staging, and what all ranks together read of the shared files."""
    nodes = runs.groupby("record")["nodes"].first()
    table = points(timed(runs), MEASURES).drop(columns=["power_source", "power_reason"])
    table["nodes"] = table["records"].map(lambda records: nodes[records.split("; ")[0]])
    table = table.sort_values(["benchmark", "dataset", "loader", "gpus", "staging"], ignore_index=True)
    others = [name for name in VARIED if name != "staging"]
    shown = ["benchmark", "dataset", "loader", *others, "gpus", "nodes", "staging", *MEASURES, "repeats_ok",
             "repeats_failed", "failures", "oversubscribed"]  # fmt: skip
    caption = (
        "seconds of loading, of the slowest and the fastest rank; of that, copying or broadcasting and waiting for it "
        "(stage); MB that all ranks together asked of the files that all nodes share while they loaded, from the page "
        "cache or not (shared_read; a mapped file counts whole on each rank that maps it), and of that what storage "
        "had to give (storage_read); peak memory of the rank that had most. staging none: each rank reads; local_copy: "
        "one rank a node copies the files to storage of the node's own; node_broadcast, job_broadcast: one rank a "
        "node, or of all, loads and broadcasts."
    )
    return Table("staging", caption, table, shown, optional_columns(shown), notes(table, "values"))
