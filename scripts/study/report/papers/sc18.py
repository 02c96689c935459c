"""Tables 1 to 6 of the SC18 workshop paper beside this study's runs, memory modes, and what faster loading saves."""

from collections.abc import Callable

import pandas as pd

import study.report.tables.kinds as kinds
from study.records.power import NODE_MEANS, WHOLE_RUN
from study.records.record import NO_MODE
from study.records.tidy import PROFILE
from study.report.papers.beside import window_notes
from study.report.papers.declaration import declared
from study.report.papers.workload import workload_difference
from study.report.tables.declared import Rows, table_rows
from study.report.tables.published_values import beside_published, published, with_unmeasured

POINTS = declared("sc18").points
DIFFERENCE = workload_difference("sc18")
# Differences from the point of Table 1 with the same batch size.
OF_ITS_BATCH_SIZE = workload_difference("sc18", own=("batch_size",))
QUALITY = ["loss", "accuracy", "validation_loss", "validation_accuracy"]
PROFILE_FILE, LOADING_FILE = "sc18_table2_3_nt3_weak_profile.csv", "icpp2019_table4_loading_theta.csv"
ALIKE = {name: f"{WHOLE_RUN}{name}" for name in (*NODE_MEANS, "energy_j")}  # ours in the paper's window


@table_rows("sc18_table1", uses=POINTS["table1"].uses)
def table1(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table 1: runtime, mean power of node, CPU and memory, and energy of one node, by batch size.

    ``energy_j`` is the counter's, ``node_power_time_j`` mean power x time in the same window, and ``power_runtime_j``
    mean power x runtime, which is how the paper's energy was computed. The paper's power is of the whole run.
    """
    keys = ["benchmark", "scaling", "memory_mode", "batch_size", "gpus"]
    table = _beside("table1", runs, keys, ["runtime_s", *NODE_MEANS, "energy_j"], OF_ITS_BATCH_SIZE)
    table = table.sort_values(["benchmark", "memory_mode", "batch_size"], ignore_index=True)
    return Rows(table, window_notes(runs))


@table_rows("sc18_memory_modes", uses=POINTS["memory_modes"].uses)
def memory_modes(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Section 4.1 and Figures 3 and 4: runtime and mean power of one node in cache mode and in flat mode."""
    keys = ["benchmark", "scaling", "memory_mode", "gpus"]
    table = _beside("memory_modes", runs, keys, ["runtime_s", *NODE_MEANS])
    table = table.sort_values(["benchmark", "memory_mode"], ignore_index=True)
    return Rows(table, window_notes(runs))


@table_rows("sc18_table2_3", uses=POINTS["table2_3"].uses)
def table2_3(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per profiled point: seconds of rank 0 in the paper's columns, for each learning rate scaling."""
    keys = ["benchmark", "scaling", "memory_mode", "learning_rate_scaling", "gpus"]
    table = _beside("table2_3", runs, keys, list(PROFILE), whole=False).drop(columns=["power_source", "power_reason"])
    table = table.sort_values(["benchmark", "scaling", "learning_rate_scaling", "gpus"], ignore_index=True)
    return Rows(table)


@table_rows("sc18_table4_5_6", uses=POINTS["table4_5_6"].uses)
def table4_5_6(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Tables 4, 5 and 6: model.fit, loss and accuracy of training and validation, by learning rate and memory mode.

    ``model_fit_s`` is the slowest rank's phase ``train``, which includes validation, as the paper's model.fit.
    """
    keys = ["benchmark", "scaling", "memory_mode", "learning_rate_scaling", "gpus"]
    table = _beside("table4_5_6", runs, keys, ["model_fit_s", *QUALITY])
    table = table.drop(columns=["power_source", "power_reason"])
    order = ["benchmark", "memory_mode", "learning_rate_scaling", "gpus"]
    table = table.sort_values(order, ascending=[True, True, True, False], ignore_index=True)
    return Rows(table)


def _beside(
    source: str,
    runs: pd.DataFrame,
    keys: list[str],
    measures: list[str],
    differences: Callable[[pd.Series], str | None] = DIFFERENCE,
    whole: bool = True,
) -> pd.DataFrame:
    """Our points of a `Points` beside the published ones of their memory mode. whole: also what we did not run.

    Ratios of power and energy are of the whole run, see `study.report.papers.beside.WINDOW`.
    """
    points, file = POINTS[source].of_runs(runs), POINTS[source].file
    table = beside_published(lookup_mode(points), file, keys, measures, differences, ours=ALIKE)
    if whole:
        table = with_unmeasured(table, file, keys, measures)
    modes = pd.concat([points["memory_mode"], table["memory_mode"].iloc[len(points) :]], ignore_index=True)
    return table.assign(memory_mode=modes)


def lookup_mode(table: pd.DataFrame) -> pd.DataFrame:
    """The points with cache as memory mode where their machine declares none: the mode of the paper's main tables."""
    return table.assign(memory_mode=table["memory_mode"].where(table["memory_mode"] != NO_MODE, "cache"))


@table_rows("sc18_loading_projection", is_there=lambda study: bool(study.runs), uses=kinds.no_run)
def loading_projection(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Tables 2 and 3 with the time to read the files divided by Theta's loading speedup (icpp2019, Table 4).

    The factor is that of both NT3 files together, read_csv / chunked. It was measured on single files, while reading
    took over ten times as long within these runs, so it may not hold there.
    """
    paper = published(PROFILE_FILE)
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
    remark = (
        "the factor is that of single files; reading took over ten times as long within these runs, where the file "
        "system may be the limit"
    )
    return Rows(table, [remark])


def loading_factor() -> float:
    """How many times faster ``chunked`` loads NT3's two files than ``read_csv`` on Theta (icpp2019, Table 4)."""
    files = published(LOADING_FILE)
    nt3 = files[files["benchmark"] == "nt3"]
    return float(nt3["read_csv_s"].sum() / nt3["chunked_s"].sum())
