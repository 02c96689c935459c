"""Tables 1 to 6 of the SC18 workshop paper beside this study's runs, memory modes, and what faster loading saves."""

from collections.abc import Callable, Iterable

import pandas as pd

import study.report.tables.kinds as kinds
from study.records.power import NODE_MEANS, WHOLE_RUN
from study.records.tidy import NO_MODE, PROFILE
from study.report.papers.beside import TOLD, first, window_notes
from study.report.papers.declaration import declared
from study.report.papers.workload import workload_difference
from study.report.tables.layout import Table
from study.report.tables.published_values import NOT_STATED, beside_published, published, with_unmeasured
from study.report.tables.summary import IDENTITY, notes, optional_columns

POINTS = declared("sc18").points
DIFFERENCE = workload_difference("sc18")
# Differences from the point of Table 1 with the same batch size.
OF_ITS_BATCH_SIZE = workload_difference("sc18", own=("batch_size",))
QUALITY = ["loss", "accuracy", "validation_loss", "validation_accuracy"]
PROFILE_FILE, LOADING_FILE = "sc18_table2_3_nt3_weak_profile.csv", "icpp2019_table4_loading_theta.csv"
ALIKE = {name: f"{WHOLE_RUN}{name}" for name in (*NODE_MEANS, "energy_j")}  # ours in the paper's window


@kinds.table(
    "sc18_table1",
    title="Runtime, power and energy by batch size",
    look_for="Whether a larger batch size saves time and energy: the paper found 6.7 % less time and 6.0 % less "
    "energy with 200 than with 20. Without a power sensor the columns are empty.",
    needs="weak-scaling runs on one rank",
    uses=POINTS["table1"].uses,
    reads_further=True,
)
def table1(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Table 1: runtime, mean power of node, CPU and memory, and energy of one node, by batch size.

    ``energy_j`` is the counter's, ``node_power_time_j`` mean power x time in the same window, and ``power_runtime_j``
    mean power x runtime, which is how the paper's energy was computed. The paper's power is of the whole run.
    """
    keys = ["benchmark", "scaling", "memory_mode", "batch_size", "gpus"]
    table = _beside("table1", runs, keys, ["runtime_s", *NODE_MEANS, "energy_j"], OF_ITS_BATCH_SIZE)
    table = table.sort_values(["benchmark", "memory_mode", "batch_size"], ignore_index=True)
    shown = ["benchmark", "memory_mode", "batch_size", "runtime_s", "published_runtime_s", "ratio_runtime_s",
             *_pairs(NODE_MEANS), "energy_window_s", "energy_j", "node_power_time_j", "power_runtime_j",
             ALIKE["energy_j"], "published_energy_j", f"ratio_{ALIKE['energy_j']}", *TOLD, NOT_STATED]  # fmt: skip
    caption = (
        "One epoch on one node: runtime, and mean power of the node, its CPU and its memory from load to evaluate "
        "(energy_window_s). energy: of the node by its counter, if it has one. node_power_time: mean power x the "
        "time from load to evaluate. power_runtime: mean power x runtime, the paper's formula. published: sc18, "
        "Table 1 (Theta, cache mode)."
    )
    return _of_runs("sc18_table1", caption, table, shown, window_notes(runs))


@kinds.table(
    "sc18_memory_modes",
    title="Memory modes on one node",
    look_for="Whether the fast memory serves better as a cache or as memory of its own: the paper found 2.6 % more "
    "time and 41 % more memory power in flat mode.",
    needs="weak-scaling runs on one rank with the benchmark's batch size",
    uses=POINTS["memory_modes"].uses,
    reads_further=True,
)
def memory_modes(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Section 4.1 and Figures 3 and 4: runtime and mean power of one node in cache mode and in flat mode."""
    keys = ["benchmark", "scaling", "memory_mode", "gpus"]
    table = _beside("memory_modes", runs, keys, ["runtime_s", *NODE_MEANS])
    table = table.sort_values(["benchmark", "memory_mode"], ignore_index=True)
    shown = ["machine", "benchmark", "memory_mode", "runtime_s", "published_runtime_s", "ratio_runtime_s",
             *_pairs(NODE_MEANS), "energy_window_s", *TOLD, NOT_STATED]  # fmt: skip
    caption = (
        "one epoch on one node by memory mode, none where the machine's file declares none: runtime, and mean power of "
        "the node, its CPU and its memory from load to evaluate (energy_window_s); published: sc18, section 4.1 "
        "(Theta)."
    )
    return _of_runs("sc18_memory_modes", caption, table, shown, window_notes(runs))


@kinds.table(
    "sc18_table2_3",
    title="Where the time goes by cProfile",
    look_for="Data loading and TensorFlow take the time; what Horovod does in Python hardly grows with the ranks. "
    "The profile does not see communication within TensorFlow: the timeline does.",
    needs="profiled runs (profile: true)",
    uses=POINTS["table2_3"].uses,
    reads_further=True,
)
def table2_3(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per profiled point: seconds of rank 0 in the paper's columns, for each learning rate scaling."""
    keys = ["benchmark", "scaling", "memory_mode", "learning_rate_scaling", "gpus"]
    table = _beside("table2_3", runs, keys, list(PROFILE), whole=False).drop(columns=["power_source", "power_reason"])
    table = table.sort_values(["benchmark", "scaling", "learning_rate_scaling", "gpus"], ignore_index=True)
    beside = [column for name in PROFILE for column in (name, f"published_{name}", f"ratio_{name}")]
    shown = ["benchmark", "scaling", "learning_rate_scaling", "loader", "gpus", *beside, "repeats_ok", "repeats_failed",
             "failures", "oversubscribed", NOT_STATED]  # fmt: skip
    caption = (
        "Seconds of rank 0 under cProfile, which sees Python: the communication of training is within tensorflow. "
        "Which functions each column stands for is in docs/telemetry.md. published: sc18, Tables 2 and 3 (Theta, one "
        "rank per node)."
    )
    optional = tuple(name for name in optional_columns(shown) if name != "learning_rate_scaling")
    return Table("sc18_table2_3", caption, table, shown, optional, notes(table, "values"), IDENTITY)


@kinds.table(
    "sc18_table4_5_6",
    title="Strong scaling by learning rate and memory mode",
    look_for="Whether accuracy falls with the epochs of a rank or with a scaled learning rate: compare the rows of "
    "one rank count.",
    needs="strong-scaling runs",
    uses=POINTS["table4_5_6"].uses,
    reads_further=True,
)
def table4_5_6(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Tables 4, 5 and 6: model.fit, loss and accuracy of training and validation, by learning rate and memory mode.

    ``model_fit_s`` is the slowest rank's phase ``train``, which includes validation, as the paper's model.fit.
    """
    keys = ["benchmark", "scaling", "memory_mode", "learning_rate_scaling", "gpus"]
    table = _beside("table4_5_6", runs, keys, ["model_fit_s", *QUALITY])
    table = table.drop(columns=["power_source", "power_reason"])
    order = ["benchmark", "memory_mode", "learning_rate_scaling", "gpus"]
    table = table.sort_values(order, ascending=[True, True, True, False], ignore_index=True)
    beside = [
        column
        for name in ("model_fit_s", *QUALITY)
        for column in (name, f"published_{name}", *([] if "loss" in name else [f"ratio_{name}"]))
    ]
    shown = ["benchmark", "memory_mode", "learning_rate_scaling", "gpus", "epochs_per_rank", *beside, *TOLD, NOT_STATED]
    caption = (
        "Strong scaling: model.fit (training with its validation, of the slowest rank), loss and accuracy of the "
        "last epoch's training and validation. learning_rate_scaling: linear is the paper's increased learning rate. "
        "published: sc18, Tables 4 and 5 (cache mode) and 6 (flat mode; over 3 hours on 25 nodes, so without "
        "values)."
    )
    return _of_runs("sc18_table4_5_6", caption, table, shown, [])


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


def _pairs(measures: Iterable[str]) -> list[str]:
    """Of power: ours, ours of the whole run, the published one, and the ratio of these two."""
    return [column for name in measures for column in (name, ALIKE[name], f"published_{name}", f"ratio_{ALIKE[name]}")]


def _of_runs(name: str, caption: str, table: pd.DataFrame, shown: list[str], more: list[str]) -> Table:
    """A finished table of runs; with the columns that are always shown."""
    always = {"memory_mode", "learning_rate_scaling"}
    optional = tuple(column for column in optional_columns(shown) if column not in always)
    optional += tuple(column for column in shown if column.startswith(WHOLE_RUN))
    return Table(name, caption, first(table, shown), shown, optional, [*notes(table, "values"), *more], IDENTITY)


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
    files = published(LOADING_FILE)
    nt3 = files[files["benchmark"] == "nt3"]
    return float(nt3["read_csv_s"].sum() / nt3["chunked_s"].sum())
