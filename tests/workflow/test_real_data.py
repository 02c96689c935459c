"""The chain on real expression data: 102 prostate samples, 12,533 probes, where the files are at hand.

Set PROSTATE_DATA to the folder that holds nt_train2.csv and nt_test2.csv.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from project import ROOT

FOLDER = Path(os.environ.get("PROSTATE_DATA", ROOT.parent / "shared" / "data" / "prostate"))

pytestmark = pytest.mark.skipif(
    not (FOLDER / "nt_train2.csv").exists(), reason=f"no prostate data in {FOLDER}; set PROSTATE_DATA"
)

STUDY = f"""
description: a test on real data
datasets:
  prostate: {{benchmark: nt3, source: path, train: {FOLDER}/nt_train2.csv, test: {FOLDER}/nt_test2.csv}}
runs:
  - {{benchmark: nt3, dataset: prostate, scaling: strong, epochs: 2, gpus: 2, loader: read_csv,
     sharding: by_rank}}
loading:
  - {{benchmark: nt3, dataset: prostate, loader: [read_csv, chunked, npy], repeats: 2}}
tables: [icpp2019_table3]
"""


@pytest.mark.long
def test_the_chain_on_real_files(fresh):
    fresh.add_study("real", STUDY)
    fresh.make("runs.csv", "tables/icpp2019_table3.csv", study="real")
    (matrix,) = fresh.root.glob("data/converted/nt3/*/train.npy")
    loaded = np.load(matrix)
    assert loaded.shape == (82, 12_534)
    assert np.array_equal(loaded, np.loadtxt(FOLDER / "nt_train2.csv", delimiter=",", dtype=np.float32))
    run = pd.read_csv(fresh.made / "runs.csv").iloc[0]
    assert (run.status, run.gpus, run.epochs_per_rank) == ("ok", 2, 1)
    assert (run.train_samples, run.test_samples, run.features) == (82, 20, 12_533)
    table = pd.read_csv(fresh.made / "tables" / "icpp2019_table3.csv")
    by_npy = table[table.loader == "npy"]
    assert sorted(by_npy.size_mb.round(1)) == [0.7, 3.0]
    assert (by_npy.speedup > 2).all()
