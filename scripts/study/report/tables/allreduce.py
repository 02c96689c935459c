"""The table of allreduces by message size."""

import re
from typing import Any

import pandas as pd

from study.compare import failed_runs
from study.core.statistics import summarize
from study.records.names import join_records
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import IDENTITY

BANDWIDTH = re.compile(r"busbw_(\d+)_gb_per_s")
MBIT = 1e6 / 8  # bytes


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
