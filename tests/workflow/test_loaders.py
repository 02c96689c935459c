"""Whichever way the data come to the ranks, what is trained is the same, bit for bit."""

import json

import pandas as pd
import pytest

NETWORK = "train_samples: 60, test_samples: 20, features: 60"
SHAPES = {
    "nt3": NETWORK,
    "p1b1": NETWORK,
    "p1b2": NETWORK,
    "p1b3": "train_samples: 600, test_samples: 100, features: 700",
}
KEYS = {"p1b3": "scaling: batch, batch_scaling: linear, epochs: 1"}
LOADERS = {"nt3": ["read_csv", "parallel", "npy", "mapped"]}  # of the others the two that differ most


def study(benchmark, loaders):
    return f"""
description: a test
datasets:
  {benchmark}: {{source: synthetic, {SHAPES[benchmark]}, seed: 1}}
runs:
  - {{benchmark: {benchmark}, {KEYS.get(benchmark, "scaling: weak, epochs: 4")}, gpus: 2, batch_size: 10,
     loader: [{", ".join(loaders)}]}}
tables: [scaling]
"""


@pytest.mark.parametrize("benchmark", list(SHAPES))
def test_the_same_weights_whichever_loader(fresh, benchmark):
    loaders = LOADERS.get(benchmark, ["read_csv", "mapped"])
    fresh.add_study("loaders", study(benchmark, loaders))
    fresh.snakemake(study="loaders")
    runs = pd.read_csv(fresh.results / "runs.csv").set_index("loader")
    assert runs.status.to_dict() == dict.fromkeys(loaders, "ok"), runs.failure_message.tolist()
    found = [json.loads((fresh.results / runs.record[name]).with_name("metrics.json").read_text()) for name in loaders]
    for metrics in found:
        assert metrics["initial_weights_crc32"] == found[0]["initial_weights_crc32"]
        assert metrics["test"] == found[0]["test"]
        assert len({rank["final_weights_crc32"] for rank in [*metrics["ranks"], *found[0]["ranks"]]}) == 1
    assert runs.load_s["mapped"] < runs.load_s["read_csv"]


FORMATS = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 40, test_samples: 20, features: 60, seed: 1}
runs: []
loading:
  - {benchmark: nt3, loader: [read_csv, npy, mapped, hdf5, parquet, tfrecord], page_cache: [warm, cold], repeats: 1}
tables: [formats, icpp2019_table3]
figures: [formats]
"""


def test_formats_are_compared_beside_loaders(fresh):
    fresh.add_study("formats_small", FORMATS)
    fresh.snakemake(study="formats_small")
    loads = pd.read_csv(fresh.results / "loading.csv")
    assert set(loads.status) == {"ok"}, loads.message.dropna().tolist()
    formats = pd.read_csv(fresh.results / "tables" / "formats.csv")
    assert set(formats.format) == {"npy", "hdf5", "parquet", "tfrecord"}
    assert (formats.load_s > 0).all()
    assert "<svg" in (fresh.results / "figures" / "formats.svg").read_text()
    table3 = pd.read_csv(fresh.results / "tables" / "icpp2019_table3.csv")
    assert {"read_csv_s", "npy_s", "mapped_s"} <= set(table3)
    assert not {"hdf5_s", "parquet_s", "tfrecord_s"} & set(table3)
