"""Differences of runs from those of the Pittman paper."""

import pandas as pd

from study.report.papers.pittman2018.published import NETWORKS, TEXT
from study.report.tables.summary import declared_differences, difference, published

PAPER = "pittman2018"
ROUNDED = -5  # the number of images is printed in units of 100,000


def workload_difference(row: pd.Series) -> str | None:
    """How the data or training of a point differ from the paper's, or None.

    The paper trains on 1.3 million images of ImageNet (section III-B2), 1,000 or 2,000 steps of them.
    """
    if not row["repeats_ok"]:
        return "no repeat succeeded"
    text = published(TEXT).set_index("measure")["value"]
    batch_size = published(NETWORKS).set_index("benchmark")["batch_size"].get(row["benchmark"])
    samples = row["train_samples"]
    differences = {
        "training images": (samples if round(samples, ROUNDED) != text["images"] else text["images"], text["images"]),
        "batch size a rank": (row["batch_size_per_rank"], batch_size),
        **declared_differences(row, PAPER),
    }
    if str(row["dataset"]).startswith("synthetic"):
        differences["images"] = ("synthetic", "ImageNet's")
    return difference(differences)
