"""Our own table: broadcast and allreduce of the traced runs, from their timelines (ICPP 2019, 4.2.1 and 5.1)."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

BROADCAST = ["timeline_broadcast_span_s", "timeline_broadcast_skew_s", "timeline_broadcast_transfer_s"]
ALLREDUCE = ["allreduce_negotiation_s", "allreduce_operation_s", "allreduce_transfer_s", "allreduce_copies_s"]
FUSED = ["allreduce_first_s", "allreduce_operations", "allreduce_tensors", "allreduce_mean_mb", "allreduce_largest_mb"]


@kinds.table(
    "communication",
    title="Broadcast and allreduce by the timeline",
    look_for="Whether the broadcast waits for ranks that load longer (skew) or for the network (transfer): the "
    "paper's faster loading shortened it from 43.72 s to 4.65 s on 384 GPUs. And what an epoch's "
    "allreduce is made of.",
    needs="traced runs (trace: true)",
    uses=kinds.runs(observed="trace"),
)
def communication(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per traced point: the broadcast's span, arrival skew and transfer; allreduce per epoch by its parts."""
    table = points(runs, ["load_s", "load_fastest_s", *BROADCAST, *ALLREDUCE, *FUSED, "slowest_rank_share"])
    order = ["benchmark", "dataset", "scaling", "batch_size", "gpus", "straggler_loads", "loader"]
    table = table.sort_values(order, ignore_index=True)
    shown = ["benchmark", "scaling", "gpus", "loader", "straggler_loads", "load_fastest_s", "load_s", *BROADCAST,
             *ALLREDUCE, *FUSED, "slowest_rank_share", "repeats_ok", "repeats_failed", "failures",
             "oversubscribed"]  # fmt: skip
    caption = (
        "Communication in traced runs, in seconds. load: of the slowest and the fastest rank. span: from the first "
        "rank's arrival at the broadcast to the end of the broadcast. skew: the part of the span until the last "
        "rank's arrival. transfer: the part in which data move. allreduce: of an epoch; the first epoch is left out "
        "where there are more. It is the time in which any tensor was in an allreduce: negotiation before the "
        "operation, then transfer and fusion copies within it. operations, tensors: fused operations of the whole "
        "run, and the tensors in them. slowest_rank_share: the part of all waiting that was for the slowest rank."
    )
    remarks = notes(table, "values")
    if runs["timeline_lost"].eq(True).any():
        remarks.append("some timelines were damaged; what could be read of them is here")
    return Table("communication", caption, table, shown, optional_columns(shown), remarks, IDENTITY)
