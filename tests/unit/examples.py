"""Runs of a small made-up study."""

import copy

from study.experiment import grid

STUDY = {
    "description": "a test",
    "datasets": {"nt3": {"source": "synthetic", "train_samples": 100, "test_samples": 20, "features": 60, "seed": 1}},
    "runs": [],
    "tables": ["scaling"],
}


def expand(**point):
    content = copy.deepcopy(STUDY)
    full = {"source": "url"}
    if point.pop("full_size", False):
        content["datasets"]["nt3"] = full
    content["runs"] = [{"benchmark": "nt3", "scaling": "strong", "epochs": 4, "gpus": 2, "loader": "read_csv", **point}]
    return grid.expand("test", content, "test.yaml").runs
