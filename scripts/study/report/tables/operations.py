"""Our own table: what a training step's time goes into, by the frameworks' profilers."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.records.names import split_records
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

STEP = "operations_step_s"
# In the order in which a moment of a step counts, which is that of the figure's bars.
PARTS = ("operations_compute_s", "operations_copies_s", "operations_communication_s", "operations_input_wait_s",
         "operations_idle_s")  # fmt: skip
SENT = ["operations_communication_all_s", "operations_communication_hidden"]
REASON, LARGEST, DEVICE = "operations_communication_reason", "operations_largest", "operations_device"
CAPTION = (
    "Time per step of rank 0 in the profiled steps, from asking for a batch to asking for the next. A moment counts "
    "once, for the first that applies: compute, copies, communication, input wait, else idle. The five add up to "
    "the step. Profiling slows a step: compare shares, not times with those of other tables. communication_all: "
    "with the communication that computation hides. hidden: share of communication_all that computation hides. "
    "largest: the largest operations by their own time, per step, in the first repeat."
)

NEEDS = "runs whose operations are profiled (profile: operations)"
USES = kinds.runs(observed="profile: operations")


@kinds.table(
    "operations",
    title="Where a step's time goes",
    look_for="Whether a step computes or waits: idle time means that no operation ran, input wait that the loader "
    "is too slow, and communication that is not hidden that other ranks or the network are.",
    needs=NEEDS,
    uses=USES,
)
def operations(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per profiled point: its step by what it did, communication that is hidden, the largest operations."""
    table = points(runs, [STEP, *PARTS, *SENT])
    first = runs[runs["status"] == "ok"].drop_duplicates("record").set_index("record")
    for name in (DEVICE, LARGEST, REASON):
        table[name] = [_first_told(first, name, records) for records in table["records"]]
    order = ["benchmark", "dataset", "framework", "strategy", "scaling", "batch_size", "gpus"]
    table = table.sort_values(order, ignore_index=True)
    shown = ["benchmark", "framework", "strategy", "scaling", "gpus", "batch_size", "loader", DEVICE, STEP, *PARTS,
             *SENT, REASON, LARGEST, "repeats_ok", "repeats_failed", "failures", "oversubscribed"]  # fmt: skip
    remarks = notes(table, "values")
    if (table["gpus"] > 1).any():
        remarks.append("all ranks were profiled, so that all are equally slow; the times are rank 0's")
    if table[PARTS[2]].isna().any() and table[REASON].notna().any():
        remarks.append("where communication is not seen, waiting for it is in the idle time")
    return Table("operations", CAPTION, table, shown, optional_columns(shown), remarks, IDENTITY)


def _first_told(runs: pd.DataFrame, name: str, records: str) -> object:
    """A column's value in the first run of a row. records: as `study.records.names` joins them."""
    own = runs[runs.index.isin(split_records(records))]
    return own[name].iloc[0] if len(own) else None
