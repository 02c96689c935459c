"""Differences of runs and files from those of the ICPP 2019 paper; if there are any, no ratio to it is given."""

import pandas as pd

from study import workloads
from study.report.papers.points import benchmark as specification
from study.report.tables.summary import declared_differences, difference

PAPER = "icpp2019"


def workload_difference(row: pd.Series) -> str | None:
    """How the data or training of a run differ from the paper's (icpp2019, Table 1 and section 6), or None."""
    spec = specification(row["benchmark"])
    if not row["repeats_ok"]:
        return "no repeat succeeded"
    strong, batch = row["scaling"] == "strong", row["scaling"] == "batch"
    return difference(
        {
            "training samples": (row["train_samples"], spec["workload"]["train_samples"]),
            "features": (row["features"], spec["workload"]["features"]),
            "epochs": (row["epochs"], spec["epochs"].get(row["scaling"])),
            **declared_differences(row, PAPER),
            **({} if batch else {"batch size a rank": (row["batch_size_per_rank"], row["batch_size"])}),
            **({} if strong else {"batch size": (row["batch_size"], spec["batch_size"])}),
        }
    )


def in_the_papers_way(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that were trained in the paper's way: no declared grid key has a value that the paper excludes.

    Ratios to published values are given for these rows only (`workload_difference`), which also compares the workload.
    """
    return table[[not declared_differences(row, PAPER) for _, row in table.iterrows()]]


def file_difference(row: pd.Series) -> str | None:
    """How the rows and columns of a loaded file differ from the published file's, or None."""
    spec = specification(row["benchmark"])
    if "shape" not in spec:
        return "the paper does not name the file, and its rows are not known"
    rows, columns = workloads.get(row["benchmark"], spec).expected_shape(row["file"], spec["shape"])
    if columns is not None:
        columns -= len(spec["files"][row["file"]].get("drop", []))
    return difference({"rows": (row["rows"], rows), "columns": (row["columns"], columns)})
