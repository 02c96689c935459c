"""Tables of strategies, frameworks and networks: what moves gradients, and what it costs."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd

from study.compare import estimates, failed_runs
from study.core.statistics import ERROR_PER_SIDE, summarize
from study.experiment.study import Study
from study.records.names import join_records, runs_of, split_records
from study.records.tidy import STEADY
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import IDENTITY, like, points, steady

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
    table["workers_lost"] = [
        sum(lost[each] for each in split_records(records) if lost[each] > 0) for records in table["records"]
    ]
    table = table.join(pd.DataFrame([_compare_point(row, table, runs) for _, row in table.iterrows()]))
    return Rows(table)


def _compare_point(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """The columns that compare a point with Horovod's, and with the point with one server."""
    comparisons = [_against_horovod(row, table, runs), _against_one_server(row, table, runs)]
    alike = filter(None, [each.pop("blocks_alike", None) for each in comparisons])
    return {**comparisons[0], **comparisons[1], "blocks_alike": "; ".join(alike) or None}


def _against_horovod(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Ratio of steady throughputs and difference of the loss, of a point to Horovod's on the same data and ranks."""
    columns: dict[str, Any] = dict.fromkeys((*RATIO, *LOSS, "test_loss_against_horovod"))
    if row["strategy"] == "horovod":
        return columns
    # The scaling of the learning rate may differ: without averaging, a rate is not multiplied by the workers.
    alike = like(table, row, (*OF_STRATEGY, "learning_rate_scaling"))
    is_base = alike["strategy"] == "horovod"
    if not is_base.any():
        return columns
    base = _nearest(alike[is_base], row, "learning_rate_scaling")
    ratio = estimates.compare_rows(runs, row["records"], base["records"], STEADY)
    columns |= dict(zip(RATIO, (*ratio.numbers, ratio.pairing), strict=True)) | {"blocks_unlike": ratio.unlike}
    columns["blocks_alike"] = estimates.describe_fewer_blocks({"throughput_ratio": ratio})
    error = ERROR_PER_SIDE / (~is_base).sum()  # Bonferroni: of all points with the same base together
    own, of_base = (runs_of(runs, each["records"]) for each in (row, base))
    loss = estimates.estimate_difference(own, of_base, "test_loss", error)
    return (
        columns
        | dict(zip(LOSS, loss.numbers, strict=True))
        | {"test_loss_against_horovod": _verdict(loss.low, loss.high)}
    )


def _against_one_server(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """The ratio of step rates of a point with several servers to the same point with one, without the first epoch."""
    columns: dict[str, Any] = dict.fromkeys(TO_ONE_SERVER)
    if row["servers"] < 2:
        return columns
    of_one = like(table[table["servers"] == 1], row, ("servers", "server_placement"))  # one server has all variables
    if of_one.empty:
        return columns
    base = _nearest(of_one, row, "server_placement")
    ratio = estimates.compare_rows(runs, base["records"], row["records"], "time_per_step_s")
    columns["blocks_alike"] = estimates.describe_fewer_blocks({"ratio_to_one_server": ratio})
    return columns | dict(zip(TO_ONE_SERVER, ratio.numbers, strict=True))


def _nearest(bases: pd.DataFrame, row: pd.Series, key: str) -> pd.Series:
    """The first of them that has the row's value of ``key``; the first one if none has."""
    same = bases[bases[key] == row[key]]
    return (bases if same.empty else same).iloc[0]


def _verdict(low: float, high: float) -> str | None:
    """Of the interval of a difference; None without one."""
    if math.isnan(low):
        return None
    return HIGHER if low > 0 else LOWER if high < 0 else NO_DIFFERENCE


BASE = "tensorflow"
EPOCH_TIME = "time_per_epoch_steady_s"
FRAMEWORK_MEASURES = [EPOCH_TIME, "first_epoch_excess_s", "startup_s", "broadcast_s", "gradient_mb",
                      "tcp_sent_mb_per_step", "test_loss", "runtime_s"]  # fmt: skip
OF_FRAMEWORK = ("framework", "strategy")
EPOCH_RATIO = ["epoch_ratio", "epoch_ratio_low", "epoch_ratio_high", "pairing"]
STARTUP_RATIO = ["startup_ratio", "startup_ratio_low", "startup_ratio_high"]


def compares(study: Study) -> bool:
    """Whether a study has runs with two frameworks."""
    return len({run["framework"] for run in study.runs}) > 1


@table_rows("frameworks", is_there=compares)
def frameworks(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point: times, bytes and test loss; ratios and loss against TensorFlow with Horovod."""
    runs = steady(runs)
    table = points(runs, FRAMEWORK_MEASURES)
    order = ["benchmark", "dataset", "gpus", *OF_FRAMEWORK]
    table = table.sort_values(order, ignore_index=True, key=lambda column: column.replace(BASE, ""))
    table = table.join(pd.DataFrame([_against_tensorflow(row, table, runs) for _, row in table.iterrows()]))
    return Rows(table)


def _against_tensorflow(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Ratios of the times and the difference of the loss, of a point to TensorFlow's on the same data and ranks."""
    columns: dict[str, Any] = dict.fromkeys((*EPOCH_RATIO, *STARTUP_RATIO, *LOSS))
    is_base = (table["framework"] == BASE) & (table["strategy"] == "horovod")
    others = like(table[is_base], row, OF_FRAMEWORK)
    if row["framework"] == BASE or others.empty:
        return columns
    base = others.iloc[0]
    epoch, startup = (
        estimates.compare_rows(runs, row["records"], base["records"], name) for name in (EPOCH_TIME, "startup_s")
    )
    columns |= dict(zip(EPOCH_RATIO, (*epoch.numbers, epoch.pairing), strict=True)) | {"blocks_unlike": epoch.unlike}
    columns |= dict(zip(STARTUP_RATIO, startup.numbers, strict=True))
    columns["blocks_alike"] = estimates.describe_fewer_blocks({"epoch_ratio": epoch, "startup_ratio": startup})
    own, of_base = (runs_of(runs, each["records"]) for each in (row, base))
    return columns | dict(zip(LOSS, estimates.estimate_difference(own, of_base, "test_loss").numbers, strict=True))


NETWORK_MEASURES = ["time_per_step_s", "gradient_mb", "tcp_sent_mb_per_step", "cpu_busy", "runtime_s"]
BANDWIDTH = re.compile(r"busbw_(\d+)_gb_per_s")
MBIT = 1e6 / 8  # bytes


@table_rows("network")
def network(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point with a link rate: time per step, and bytes sent against those of a ring allreduce."""
    runs = steady(runs)
    table = points(runs, NETWORK_MEASURES)
    ranks = table["gpus"]
    alone = table["ensemble"].eq(1)  # members of an ensemble send samples too
    table["ring_mb_per_step"] = (2 * (ranks - 1) / ranks * table["gradient_mb"] * _compute_averaged_share(table)).where(
        alone
    )
    table["sent_over_ring"] = table["tcp_sent_mb_per_step"] / table["ring_mb_per_step"].where(ranks > 1)
    table["wire_limit_s"] = table["ring_mb_per_step"] * 1e6 / (table["link_mbit_per_s"] * MBIT)
    table["step_over_wire"] = table["time_per_step_s"] / table["wire_limit_s"].where(ranks > 1)
    table["cpu_limited"] = _any(runs, table, "cpu_limited")
    table = table.sort_values(["benchmark", "dataset", "link_mbit_per_s", "gpus"], ignore_index=True)
    return Rows(table)


def _compute_averaged_share(table: pd.DataFrame) -> pd.Series:
    """Bytes of gradients that a step averages, in the mean, as a share of all gradients in 32 bits per value."""
    bytes_per_value = table["gradient_compression"].map({"none": 4, "fp16": 2})
    return bytes_per_value / 4 / table["backward_passes_per_step"]


def _any(runs: pd.DataFrame, table: pd.DataFrame, column: str) -> pd.Series:
    """Whether any run behind a row of the table has ``column``."""
    has = runs.set_index("record")[column].eq(True)
    return table["records"].map(lambda records: any(has.get(each, False) for each in split_records(records)))


def sweeps(run: Any) -> bool:
    """Whether a run times allreduces."""
    return bool(run["allreduce_sweep"])


@table_rows("allreduce", uses=sweeps)
def allreduce(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point and message size: bus bandwidth, and its share of the link's rate."""
    keys = [name for name in IDENTITY if name in runs]
    sizes = {int(match[1]): name for name in runs for match in [BANDWIDTH.fullmatch(name)] if match}
    rows = []
    for key, group in runs.groupby(keys, sort=True, dropna=False):
        for size, name in sorted(sizes.items()):
            rows.append({**dict(zip(keys, key, strict=True)), **_bandwidth(group, size, name)})
    columns = [*keys, "message_bytes", "busbw_gb_per_s", "busbw_ci95_gb_per_s", "share_of_link", "repeats_ok",
               "repeats_failed", "oversubscribed", "code_is_current", "records"]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    rate = table["link_mbit_per_s"] * MBIT / 1e9
    table["share_of_link"] = (table["busbw_gb_per_s"] / rate).where(rate > 0)
    return Rows(table)


def _bandwidth(group: pd.DataFrame, size: int, name: str) -> dict[str, object]:
    ok = failed_runs.keep_proven(group)
    sample = summarize(ok[name])
    return {
        "message_bytes": size,
        "busbw_gb_per_s": sample.mean,
        "busbw_ci95_gb_per_s": sample.ci95,
        "repeats_ok": len(ok),
        "repeats_failed": len(group) - len(ok),
        "oversubscribed": bool(group["oversubscribed"].any()),
        "code_is_current": bool(group["code_is_current"].all()),
        "records": join_records(group["record"]),
    }
