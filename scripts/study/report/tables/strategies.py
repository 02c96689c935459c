"""Our own table: ring allreduce and parameter servers on one network."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from study.compare import estimates
from study.core.statistics import ERROR_PER_SIDE
from study.records.names import runs_of, split_records
from study.records.tidy import STEADY
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import like, points, steady

MEASURES = [STEADY, "time_per_step_s", "gradient_mb", "tcp_sent_mb_per_step",
            "tcp_received_mb_per_step", "servers_sent_mb_per_step", "busiest_server_share", "test_loss",
            "runtime_s"]  # fmt: skip
OF_STRATEGY = ("strategy", "servers", "server_placement")
RATIO = ["throughput_ratio", "throughput_ratio_low", "throughput_ratio_high", "pairing"]
LOSS = ["test_loss_difference", "test_loss_difference_low", "test_loss_difference_high"]
HIGHER, LOWER, NO_DIFFERENCE = "higher", "lower", "no difference shown"
TO_ONE_SERVER = ["ratio_to_one_server", "ratio_to_one_server_low", "ratio_to_one_server_high"]


@table_rows("strategies")
def strategies(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point: throughput, bytes per step and test loss; ratio and loss against Horovod's point."""
    runs = steady(runs)
    table = points(runs, MEASURES)
    first = ["horovod", "parameter_server"]
    table["strategy"] = pd.Categorical(table["strategy"], [*first, *sorted({*table["strategy"]} - {*first})])
    order = ["benchmark", "dataset", "gpus", *OF_STRATEGY]
    table = table.sort_values(order, ignore_index=True).astype({"strategy": str}).copy()
    lost = runs.groupby("record")["workers_lost"].first()
    table["workers_lost"] = [sum(lost[each] for each in split_records(of) if lost[each] > 0) for of in table["records"]]
    table = table.join(pd.DataFrame([_compared(row, table, runs) for _, row in table.iterrows()]))
    return Rows(table)


def _compared(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """A point against Horovod's, and against that with one server."""
    found = [_against_horovod(row, table, runs), _against_one_server(row, table, runs)]
    alike = filter(None, [each.pop("blocks_alike", None) for each in found])
    return {**found[0], **found[1], "blocks_alike": "; ".join(alike) or None}


def _against_horovod(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Ratio of steady throughputs and difference of the loss, of a point to Horovod's on the same data and ranks."""
    found: dict[str, Any] = dict.fromkeys((*RATIO, *LOSS, "test_loss_against_horovod"))
    if row["strategy"] == "horovod":
        return found
    # The scaling of the learning rate may differ: without averaging, a rate is not multiplied by the workers.
    alike = like(table, row, (*OF_STRATEGY, "learning_rate_scaling"))
    is_base = alike["strategy"] == "horovod"
    if not is_base.any():
        return found
    base = _nearest(alike[is_base], row, "learning_rate_scaling")
    ratio = estimates.compare_rows(runs, row["records"], base["records"], STEADY)
    found |= dict(zip(RATIO, (*ratio.numbers, ratio.pairing), strict=True)) | {"blocks_unlike": ratio.unlike}
    found["blocks_alike"] = estimates.describe_fewer_blocks({"throughput_ratio": ratio})
    error = ERROR_PER_SIDE / (~is_base).sum()  # Bonferroni: of all points with the same base together
    own, of_base = (runs_of(runs, each["records"]) for each in (row, base))
    loss = estimates.estimate_difference(own, of_base, "test_loss", error)
    return (
        found
        | dict(zip(LOSS, loss.numbers, strict=True))
        | {"test_loss_against_horovod": _verdict(loss.low, loss.high)}
    )


def _against_one_server(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """The ratio of step rates of a point with several servers to the same point with one, without the first epoch."""
    found: dict[str, Any] = dict.fromkeys(TO_ONE_SERVER)
    if row["servers"] < 2:
        return found
    of_one = like(table[table["servers"] == 1], row, ("servers", "server_placement"))  # one server has all variables
    if of_one.empty:
        return found
    base = _nearest(of_one, row, "server_placement")
    ratio = estimates.compare_rows(runs, base["records"], row["records"], "time_per_step_s")
    found["blocks_alike"] = estimates.describe_fewer_blocks({"ratio_to_one_server": ratio})
    return found | dict(zip(TO_ONE_SERVER, ratio.numbers, strict=True))


def _nearest(bases: pd.DataFrame, row: pd.Series, key: str) -> pd.Series:
    """The first of them that has the row's value of ``key``; the first one if none has."""
    same = bases[bases[key] == row[key]]
    return (bases if same.empty else same).iloc[0]


def _verdict(low: float, high: float) -> str | None:
    """Of the interval of a difference; None without one."""
    if math.isnan(low):
        return None
    return HIGHER if low > 0 else LOWER if high < 0 else NO_DIFFERENCE
