"""What faster loading would save in the SC18 paper's runs: a projection from published numbers alone."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.report.tables.layout import Table
from study.report.tables.summary import published

PROFILE, LOADING = "sc18_table2_3_nt3_weak_profile.csv", "icpp2019_table4_loading_theta.csv"


@kinds.table(
    "sc18_loading_projection",
    title="Projection: faster loading in the paper's runs",
    look_for="How much of each run the paper's own later loader would save, if it were as much faster within these "
    "runs as on single files. A projection: nothing here was measured.",
    needs="runs",
    is_there=lambda study: bool(study.runs),
)
def loading_projection(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Tables 2 and 3 with the time to read the files divided by Theta's loading speedup (icpp2019, Table 4).

    The factor is that of both NT3 files together, read_csv / chunked. It was measured on single files, while reading
    took over ten times as long within these runs, so it may not hold there.
    """
    paper = published(PROFILE)
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
    caption = (
        "projected, not measured: the paper's total runtime if reading the files were faster by Theta's own factor for "
        "NT3's two files (icpp2019, Table 4: read_csv / chunked); published: sc18, Tables 2 and 3."
    )
    remark = (
        "the factor is that of single files; reading took over ten times as long within these runs, where the file "
        "system may be the limit"
    )
    return Table("sc18_loading_projection", caption, table, list(table), (), [remark])


def loading_factor() -> float:
    """How many times faster ``chunked`` loads NT3's two files than ``read_csv`` on Theta (icpp2019, Table 4)."""
    files = published(LOADING)
    nt3 = files[files["benchmark"] == "nt3"]
    return float(nt3["read_csv_s"].sum() / nt3["chunked_s"].sum())
