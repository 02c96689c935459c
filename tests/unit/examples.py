"""Runs of a small study."""

import copy

from study.experiment import expansion, inputs
from study.machines import machine

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
    return expansion.expand("test", content, "test.yaml").runs


def define(planned, on="local", data_dir="data"):
    """The definition of a planned run on a machine."""
    return inputs.define(planned, machine.load(on), data_dir)
