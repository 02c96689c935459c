"""Our own table: the same network trained by two frameworks, and what carries their gradients."""

from __future__ import annotations

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.experiment.study import Study
from study.records import pairing
from study.records.names import runs_of
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, like, notes, optional_columns, points, steady

BASE = "tensorflow"
STEADY = "time_per_epoch_steady_s"
MEASURES = [STEADY, "first_epoch_excess_s", "startup_s", "broadcast_s", "gradient_mb", "tcp_sent_mb_per_step",
            "test_loss", "runtime_s"]  # fmt: skip
OF_FRAMEWORK = ("framework", "strategy")
RATIO = ["epoch_ratio", "epoch_ratio_low", "epoch_ratio_high", "pairing"]
STARTUP_RATIO = ["startup_ratio", "startup_ratio_low", "startup_ratio_high"]
LOSS = ["test_loss_difference", "test_loss_difference_low", "test_loss_difference_high"]


def compares(study: Study) -> bool:
    """Whether a study has runs with two frameworks."""
    return len({run["framework"] for run in study.runs}) > 1


@kinds.table(
    "frameworks",
    title="Frameworks and what carries their gradients",
    look_for="Whether an epoch takes longer with PyTorch, on DDP or on Horovod, than with TensorFlow, what the "
    "start costs, and whether both "
    "train to the same loss.",
    needs="runs with framework tensorflow and with framework pytorch",
    uses=kinds.runs(),
    is_there=compares,
    compares_runs=True,
)
def frameworks(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per point: times, bytes and test loss; ratios and loss against TensorFlow with Horovod."""
    runs = steady(runs)
    table = points(runs, MEASURES)
    order = ["benchmark", "dataset", "gpus", *OF_FRAMEWORK]
    table = table.sort_values(order, ignore_index=True, key=lambda column: column.replace(BASE, ""))
    table = table.join(pd.DataFrame([_against_tensorflow(row, table, runs) for _, row in table.iterrows()]))
    shown = ["benchmark", "gpus", "batch_size_per_rank", *OF_FRAMEWORK, *MEASURES, *RATIO[:-1], *STARTUP_RATIO, *LOSS,
             "repeats_ok", "repeats_failed", "failures", "pairing", "oversubscribed"]  # fmt: skip
    caption = (
        "Networks, initial weights, order of the samples and hyper-parameters are the same in both frameworks; the "
        "masks of dropout differ. time_per_epoch_steady_s: median of the epochs after the first, with validation. "
        "first_epoch_excess_s: by how much the first epoch is longer. tcp_sent_mb_per_step: of one rank. A ring "
        "allreduce among N ranks sends 2 (N - 1) / N of gradient_mb. gradient_mb: size of the gradients. "
        "epoch_ratio, startup_ratio: time divided by that of TensorFlow with Horovod, with 95 % intervals; blocks "
        "are paired; below 1 is faster. test_loss_difference: test loss less that of TensorFlow with Horovod within "
        "blocks, with its 95 % interval."
    )
    return Table(
        "frameworks", caption, table, shown, optional_columns(shown), notes(table, "values"), (*IDENTITY, "gradient_mb")
    )


def _against_tensorflow(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Ratios of the times and the difference of the loss, of a point to TensorFlow's on the same data and ranks."""
    found: dict[str, Any] = dict.fromkeys((*RATIO, *STARTUP_RATIO, *LOSS))
    is_base = (table["framework"] == BASE) & (table["strategy"] == "horovod")
    others = like(table[is_base], row, OF_FRAMEWORK)
    if row["framework"] == BASE or others.empty:
        return found
    base = others.iloc[0]
    epoch, startup = (pairing.between(runs, row["records"], base["records"], name) for name in (STEADY, "startup_s"))
    found |= dict(zip(RATIO, (*epoch.numbers, epoch.pairing), strict=True)) | {"blocks_unlike": epoch.unlike}
    found |= dict(zip(STARTUP_RATIO, startup.numbers, strict=True))
    found["blocks_alike"] = pairing.blocks_alike({"epoch_ratio": epoch, "startup_ratio": startup})
    own, of_base = (runs_of(runs, each["records"]) for each in (row, base))
    return found | dict(zip(LOSS, pairing.difference(own, of_base, "test_loss"), strict=True))
