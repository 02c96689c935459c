"""Our own tables of the network: what a step costs on links of several rates, and allreduces by message size."""

import re
from typing import Any

import pandas as pd

from study.core.statistics import summarize
from study.records.names import join_records, split_records
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import IDENTITY, points, steady

MEASURES = ["time_per_step_s", "gradient_mb", "tcp_sent_mb_per_step", "cpu_busy", "runtime_s"]
BANDWIDTH = re.compile(r"busbw_(\d+)_gb_per_s")
MBIT = 1e6 / 8  # bytes


@table_rows("network")
def network(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point with a link rate: time per step, and bytes sent against those of a ring allreduce."""
    runs = steady(runs)
    table = points(runs, MEASURES)
    ranks = table["gpus"]
    alone = table["ensemble"].eq(1)  # members of an ensemble send samples too
    table["ring_mb_per_step"] = (2 * (ranks - 1) / ranks * table["gradient_mb"] * _averaged_share(table)).where(alone)
    table["sent_over_ring"] = table["tcp_sent_mb_per_step"] / table["ring_mb_per_step"].where(ranks > 1)
    table["wire_limit_s"] = table["ring_mb_per_step"] * 1e6 / (table["link_mbit_per_s"] * MBIT)
    table["step_over_wire"] = table["time_per_step_s"] / table["wire_limit_s"].where(ranks > 1)
    table["cpu_limited"] = _any(runs, table, "cpu_limited")
    table = table.sort_values(["benchmark", "dataset", "link_mbit_per_s", "gpus"], ignore_index=True)
    return Rows(table)


def _averaged_share(table: pd.DataFrame) -> pd.Series:
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
    sizes = {int(found[1]): name for name in runs for found in [BANDWIDTH.fullmatch(name)] if found}
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
    ok = group[group["status"] == "ok"]
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
