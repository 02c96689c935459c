"""Differences of runs from those of the Han paper; what is published of theirs is less than of other papers."""

import pandas as pd

from study.report.papers.han2019.published import TEXT
from study.report.tables.summary import declared_differences, difference, published

PAPER = "han2019"


def workload_difference(row: pd.Series) -> str | None:
    """How the data or training of a point differ from the paper's, or None.

    The paper's images are ImageNet's (section III); their size, epochs and optimizer are not published.
    """
    if not row["repeats_ok"]:
        return "no repeat succeeded"
    table = published(TEXT)
    images = int(table.loc[table["measure"] == "images_per_epoch", "value"].iloc[0])
    differences = {"training images": (row["train_samples"], images), **declared_differences(row, PAPER)}
    if str(row["dataset"]).startswith("synthetic"):
        differences["images"] = ("synthetic", "ImageNet's")
    return difference(differences)
