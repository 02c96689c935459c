"""Tables 2 and 3 of the SC18 workshop paper (see `study.instruments.profiler`), from this study's profiled runs."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.core import configuration
from study.instruments.profiler import COLUMNS
from study.report.tables.layout import Table
from study.report.tables.summary import (
    IDENTITY,
    beside_published,
    declared_differences,
    difference,
    notes,
    optional_columns,
    points,
)

EPOCHS = 1  # per node (sc18, section IV)


@kinds.table(
    "sc18_table2_3",
    title="Where the time goes by cProfile",
    look_for="Data loading and TensorFlow take the time; what Horovod does in Python hardly grows with the ranks. "
    "The profile does not see communication within TensorFlow: the timeline does.",
    needs="profiled runs (profile: true)",
    uses=kinds.runs(observed="profile"),
)
def table2_3(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per profiled point: seconds of rank 0 in the paper's columns, for each learning rate scaling."""
    measures = [f"profile_{name}" for name in ("total_s", *COLUMNS)]
    table = points(runs, measures).rename(columns=lambda name: name.removeprefix("profile_"))
    measures = [name.removeprefix("profile_") for name in measures]
    table = table.drop(columns=["power_source", "power_reason"])
    table = table.sort_values(["benchmark", "scaling", "learning_rate_scaling", "gpus"], ignore_index=True)
    keys = ["benchmark", "scaling", "learning_rate_scaling", "gpus"]
    table = beside_published(table, "sc18_table2_3_nt3_weak_profile.csv", keys, measures, _difference)
    beside = [column for name in measures for column in (name, f"published_{name}", f"ratio_{name}")]
    shown = ["benchmark", "scaling", "learning_rate_scaling", "loader", "gpus", *beside, "repeats_ok", "repeats_failed",
             "failures", "oversubscribed"]  # fmt: skip
    caption = (
        "seconds of rank 0 under cProfile, which sees Python: the communication of training is within tensorflow; "
        "which functions each column stands for is in docs/telemetry.md; published: sc18, Tables 2 and 3 (Theta, a "
        "node a rank)."
    )
    optional = tuple(name for name in optional_columns(shown) if name != "learning_rate_scaling")
    return Table("sc18_table2_3", caption, table, shown, optional, notes(table, "values"), IDENTITY)


def _difference(row: pd.Series) -> str | None:
    """How a run differs from sc18's, or None."""
    if not row["repeats_ok"]:
        return "no repeat succeeded"
    spec = configuration.load_named("benchmarks", row["benchmark"])
    return difference(
        {
            "training samples": (row["train_samples"], spec["workload"]["train_samples"]),
            "features": (row["features"], spec["workload"]["features"]),
            "epochs": (row["epochs"], EPOCHS),
            "batch size a rank": (row["batch_size_per_rank"], spec["batch_size"]),
            **declared_differences(row, "sc18"),
        }
    )
