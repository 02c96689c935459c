"""Differences of runs from those of the PRACE guide: no run is like for like, since frameworks and data differ."""

import pandas as pd

from study.report.papers.prace2019.published import IMAGES
from study.report.tables.summary import difference

PAPER = "prace2019"
NETWORK = "resnet50"


def workload_difference(row: pd.Series) -> str | None:
    """How the network and the data of a point differ from the guide's ResNet-50 on ImageNet, or None."""
    if not row["repeats_ok"]:
        return "no repeat succeeded"
    differences = {"network": (row["benchmark"], NETWORK), "training samples": (row["train_samples"], IMAGES)}
    if str(row["dataset"]).startswith("synthetic"):
        differences["data"] = ("synthetic", "ImageNet")
    return difference(differences)
