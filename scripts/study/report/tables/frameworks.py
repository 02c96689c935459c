"""Our own table: the same network trained by two frameworks, and what carries their gradients."""

from __future__ import annotations

from typing import Any

import pandas as pd

from study.compare import estimates
from study.experiment.study import Study
from study.records.names import runs_of
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import like, points, steady

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


@table_rows("frameworks", is_there=compares)
def frameworks(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point: times, bytes and test loss; ratios and loss against TensorFlow with Horovod."""
    runs = steady(runs)
    table = points(runs, MEASURES)
    order = ["benchmark", "dataset", "gpus", *OF_FRAMEWORK]
    table = table.sort_values(order, ignore_index=True, key=lambda column: column.replace(BASE, ""))
    table = table.join(pd.DataFrame([_against_tensorflow(row, table, runs) for _, row in table.iterrows()]))
    return Rows(table)


def _against_tensorflow(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Ratios of the times and the difference of the loss, of a point to TensorFlow's on the same data and ranks."""
    found: dict[str, Any] = dict.fromkeys((*RATIO, *STARTUP_RATIO, *LOSS))
    is_base = (table["framework"] == BASE) & (table["strategy"] == "horovod")
    others = like(table[is_base], row, OF_FRAMEWORK)
    if row["framework"] == BASE or others.empty:
        return found
    base = others.iloc[0]
    epoch, startup = (
        estimates.compare_rows(runs, row["records"], base["records"], name) for name in (STEADY, "startup_s")
    )
    found |= dict(zip(RATIO, (*epoch.numbers, epoch.pairing), strict=True)) | {"blocks_unlike": epoch.unlike}
    found |= dict(zip(STARTUP_RATIO, startup.numbers, strict=True))
    found["blocks_alike"] = estimates.describe_fewer_blocks({"epoch_ratio": epoch, "startup_ratio": startup})
    own, of_base = (runs_of(runs, each["records"]) for each in (row, base))
    return found | dict(zip(LOSS, estimates.estimate_difference(own, of_base, "test_loss").numbers, strict=True))
