"""The table of allreduces by message size."""

import re
from typing import Any

import pandas as pd

from study.report.tables.declared import Rows, table_rows
from study.report.tables.layout import ci95_name
from study.report.tables.summary import points

BANDWIDTH = re.compile(r"busbw_(\d+)_gb_per_s")
MBIT = 1e6 / 8  # bytes


def sweeps(run: Any) -> bool:
    """Whether a run times allreduces."""
    return bool(run["allreduce_sweep"])


@table_rows("allreduce", uses=sweeps)
def allreduce(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point and message size: bus bandwidth, and its share of the link's rate."""
    parts = []
    for name in runs:
        if match := BANDWIDTH.fullmatch(name):
            columns = {name: "busbw_gb_per_s", ci95_name(name): "busbw_ci95_gb_per_s"}
            parts.append(points(runs, [name]).rename(columns=columns).assign(message_bytes=int(match[1])))
    table = pd.concat(parts) if parts else points(runs, []).assign(message_bytes=None, busbw_gb_per_s=None)
    rate = table["link_mbit_per_s"] * MBIT / 1e9
    table["share_of_link"] = (table["busbw_gb_per_s"] / rate).where(rate > 0)
    return Rows(
        table.sort_values(["machine", "benchmark", "link_mbit_per_s", "gpus", "message_bytes"], ignore_index=True)
    )
