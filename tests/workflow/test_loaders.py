"""Whichever way the data come to the ranks, what is trained is the same, bit for bit."""

import json

import pandas as pd
import pytest
from project import copy_of_project

NETWORK = "train_samples: 60, test_samples: 20, features: 60"
SHAPES = {
    "nt3": NETWORK,
    "p1b1": NETWORK,
    "p1b2": NETWORK,
    "p1b3": "train_samples: 600, test_samples: 100, features: 700",
}
KEYS = {"p1b3": "scaling: batch, batch_scaling: linear, epochs: 1"}
TWO = ["read_csv", "mapped"]
LOADERS = {"nt3": ["read_csv", "parallel", "npy", "mapped"], "p1b1": TWO, "p1b2": TWO, "p1b3": TWO}  # that differ most


def dataset(benchmark):
    return f"  {benchmark}: {{source: synthetic, {SHAPES[benchmark]}, seed: 1}}\n"


def entry(benchmark):
    keys = KEYS.get(benchmark, "scaling: weak, epochs: 4")
    loaders = ", ".join(LOADERS[benchmark])
    return f"  - {{benchmark: {benchmark}, {keys}, gpus: 2, batch_size: 10, loader: [{loaders}]}}\n"


STUDY = f"""
description: a test
datasets:
{"".join(map(dataset, SHAPES))}\
runs:
{"".join(map(entry, SHAPES))}\
tables: [scaling]
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    project = copy_of_project(tmp_path_factory.mktemp("loaders") / "project")
    project.add_study("loaders", STUDY)
    project.snakemake(study="loaders")
    return project


@pytest.mark.long
@pytest.mark.parametrize("benchmark", list(SHAPES))
def test_the_same_weights_whichever_loader(loaded, benchmark):
    loaders = LOADERS[benchmark]
    runs = pd.read_csv(loaded.made / "runs.csv")
    runs = runs[runs.benchmark == benchmark].set_index("loader")
    assert runs.status.to_dict() == dict.fromkeys(loaders, "ok"), runs.failure_message.tolist()
    found = [json.loads((loaded.results / runs.record[name]).with_name("metrics.json").read_text()) for name in loaders]
    for metrics in found:
        assert metrics["initial_weights_crc32"] == found[0]["initial_weights_crc32"]
        assert metrics["test"] == found[0]["test"]
        assert len({rank["final_weights_crc32"] for rank in [*metrics["ranks"], *found[0]["ranks"]]}) == 1
