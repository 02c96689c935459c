"""Our own table: what checkpoints cost, and how often to write them."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.experiment.parameters import is_observed
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

MEASURES = ["checkpoint_state_mb", "checkpoint_file_mb", "checkpoint_write_s", "checkpoint_restore_s",
            "checkpoint_restored_loss_error", "checkpoint_s", "train_s", "time_per_epoch_steady_s"]  # fmt: skip
# Mean times between failures of a job, assumed: no machine of this study has a measured one.
ASSUMED_FAILURES_H = (1, 24, 168)


def writes_checkpoints(run: Any) -> bool:
    """Whether a run gives timings and writes checkpoints."""
    return is_observed(run, None) and run["checkpoint_epochs"] > 0


def young_interval_s(write_s: float, between_failures_s: float) -> float:
    """The time between checkpoints (s) with the least expected loss, to first order.

    interval = sqrt(2 x write time x mean time between failures). Valid while the write time is small against the mean
    time between failures; then it loses sqrt(2 x write time / mean time between failures) of the run.

    Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, Communications of the ACM 17
    (1974), 530-531; J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
    Generation Computer Systems 22 (2006), 303-312, whose first term it is.
    """
    return math.sqrt(2 * write_s * between_failures_s)


@kinds.table(
    "checkpoint_cost",
    title="What checkpoints cost",
    look_for="How the time to write grows with the state, which share of a run checkpoints take, and how often to "
    "write them.",
    needs="runs with checkpoint_epochs",
    uses=writes_checkpoints,
)
def checkpoint_cost(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per point: size, seconds to write and to restore, share of the run, and Young's interval."""
    table = points(runs, MEASURES)
    interval = table["checkpoint_epochs"] * table["time_per_epoch_steady_s"]
    table["checkpoint_interval_s"] = interval
    table["write_share_of_interval"] = table["checkpoint_write_s"] / interval
    table["held_share_of_training"] = table["checkpoint_s"] / table["train_s"]
    advised = {
        f"advised_interval_failures_{hours}h_s": [
            young_interval_s(write, hours * 3600) for write in table["checkpoint_write_s"]
        ]
        for hours in ASSUMED_FAILURES_H
    }
    table = pd.concat([table, pd.DataFrame(advised, index=table.index)], axis=1)
    table = table.sort_values(["checkpoint_state_mb", "benchmark", "gpus"], ignore_index=True)
    shown = ["benchmark", "gpus", "checkpoint_epochs", *MEASURES[:5], "checkpoint_interval_s",
             "write_share_of_interval", "held_share_of_training", *advised, "repeats_ok", "repeats_failed",
             "failures", "oversubscribed"]  # fmt: skip
    caption = (
        "Cost of checkpoints: MB of weights and optimizer slots, and of the file; seconds to write it, in a thread "
        "while training goes on, and to restore it from the page cache. restored_loss_error: relative difference of "
        "the restored model's validation loss from that of its epoch. write_share_of_interval: write time as a share "
        "of the time between two checkpoints, by the median epoch after the first. held_share_of_training: share of "
        "training in which rank 0 copied the state or waited for the last write. advised_interval: advice, not a "
        "measurement: time between checkpoints by Young (1974), sqrt(2 x write time x mean time between failures), "
        "if the job fails every 1, 24 or 168 hours on average."
    )
    return Table("checkpoint_cost", caption, table, shown, optional_columns(shown), notes(table, "values"), IDENTITY)
