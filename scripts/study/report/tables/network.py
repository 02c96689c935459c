"""Our own tables of the network: what a step costs on links of several rates, and allreduces by message size."""

import re
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core.statistics import summarize
from study.experiment.parameters import is_observed
from study.records.names import join_records, split_records
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points, steady

MEASURES = ["time_per_step_s", "gradient_mb", "tcp_sent_mb_per_step", "cpu_busy", "runtime_s"]
BANDWIDTH = re.compile(r"busbw_(\d+)_gb_per_s")
MBIT = 1e6 / 8  # bytes


def limits_links(run: Any) -> bool:
    """Whether a run gives timings on links of a limited rate."""
    return is_observed(run, None) and run["link_mbit_per_s"] > 0


@kinds.table(
    "network",
    title="Steps on links of several rates",
    look_for="How far the time per step follows the rate of the links, and whether the links or the processors limit "
    "it. The hosts are namespaces of one machine: Horovod, TCP and ssh are real, cores and memory are shared, and the "
    "link rates are emulated.",
    needs="runs with link_mbit_per_s",
    uses=limits_links,
)
def network(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
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
    shown = ["benchmark", "scaling", "link_mbit_per_s", "gpus", "batch_size_per_rank", "time_per_step_s",
             "wire_limit_s", "step_over_wire", "tcp_sent_mb_per_step", "ring_mb_per_step", "sent_over_ring",
             "cpu_busy", "cpu_limited", "repeats_ok", "repeats_failed", "failures", "oversubscribed"]  # fmt: skip
    caption = (
        "Network laboratory, one rank per host, emulated link rates: median time per step without the first epoch "
        "and without validation. wire_limit_s: time that the links need for the bytes of a ring allreduce: 2 (N - 1) "
        "/ N times the gradients that a step averages, among N hosts; with fp16 compression half of their bytes. "
        "step_over_wire: time per step divided by wire_limit_s. sent_over_ring: bytes that a rank really sent, "
        "divided by those of a ring allreduce; empty for ensembles, which also send samples. cpu_limited: in some "
        "repeat the cores were at least 90 % busy while training, so the links may not be the limit."
    )
    return Table("network", caption, table, shown, optional_columns(shown), notes(table, "values"), IDENTITY)


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


NEEDS = "runs with allreduce_sweep"


@kinds.table(
    "allreduce",
    title="Allreduce by message size",
    look_for="From which message size an allreduce reaches the rate of the links.",
    needs=NEEDS,
    uses=sweeps,
)
def allreduce(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
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
    caption = (
        "Allreduces after the evaluation: median time of the slowest rank. busbw: message size x 2 (N - 1) / "
        "N / time, among N ranks: the rate at which a ring allreduce sends. share_of_link: this rate divided by the "
        "link rate, which the network laboratory emulates."
    )
    shown = ["machine", "link_mbit_per_s", "gpus", *columns[len(keys) : -2]]
    optional = ("share_of_link", "repeats_failed", "oversubscribed")
    remarks = notes(table, "values", share_runs=True)
    return Table("allreduce", caption, table, shown, optional, remarks, (*keys, "message_bytes"))


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
