"""What the ICPP paper's faster loading would save in the runs of the SC18 workshop paper."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.report.tables.declared import Rows, table_rows
from study.report.tables.published_values import read_published

PROFILE_FILE, LOADING_FILE = "sc18_table2_3_nt3_weak_profile.csv", "icpp2019_table4_loading_theta.csv"


@table_rows("sc18_loading_projection", is_there=lambda study: bool(study.runs), uses=kinds.no_run)
def loading_projection(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Tables 2 and 3 with the time to read the files divided by Theta's loading speedup (icpp2019, Table 4).

    The factor is that of both NT3 files together, read_csv / chunked. It was measured on single files, while reading
    took over ten times as long within these runs, so it may not hold there.
    """
    paper = read_published(PROFILE_FILE)
    factor = loading_factor()
    read = paper["method_read_s"] / factor
    saved = paper["method_read_s"] - read
    table = paper[["machine", "benchmark", "memory_mode", "learning_rate_scaling", "gpus"]].assign(
        published_total_s=paper["total_s"],
        published_method_read_s=paper["method_read_s"],
        published_loading_factor=factor,
        projected_method_read_s=read,
        projected_total_s=paper["total_s"] - saved,
        projected_saving_pct=100 * saved / paper["total_s"],
    )
    return Rows(table)


def loading_factor() -> float:
    """How many times faster ``chunked`` loads NT3's two files than ``read_csv`` on Theta (icpp2019, Table 4)."""
    files = read_published(LOADING_FILE)
    seconds = files[files["benchmark"] == "nt3"].groupby("loader")["load_s"].sum()
    return float(seconds["read_csv"] / seconds["chunked"])
