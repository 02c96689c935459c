"""Differences of runs from those of the SC18 paper; if there are any, no ratio to it is given."""

import pandas as pd

from study.core import configuration
from study.report.tables.summary import declared_differences, difference

PAPER = "sc18"
EPOCHS = {"weak": 1, "strong": 400}  # of a node, and of the whole job (sc18, sections 4.2 and 5)


def workload_difference(row: pd.Series, batch_size: int | None = None) -> str | None:
    """How the data or training of a point differ from the paper's, or None.

    batch_size: the published point's; by default the benchmark's, which the paper uses in all but Table 1.
    """
    if not row["repeats_ok"]:
        return "no repeat succeeded"
    spec = configuration.load_named("benchmarks", row["benchmark"])
    return difference(
        {
            "training samples": (row["train_samples"], spec["workload"]["train_samples"]),
            "features": (row["features"], spec["workload"]["features"]),
            "epochs": (row["epochs"], EPOCHS.get(row["scaling"])),
            "batch size a rank": (row["batch_size_per_rank"], batch_size or spec["batch_size"]),
            **declared_differences(row, PAPER),
        }
    )


def is_the_papers_method(row: pd.Series) -> bool:
    """Whether a point has the paper's value of every grid key; data, epochs and batch size may differ."""
    return not declared_differences(row, PAPER)
