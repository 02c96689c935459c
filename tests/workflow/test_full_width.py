"""Each benchmark at the paper's full width, a few steps on two real ranks. Not in the default suite: pytest -m full."""

import json

import pandas as pd
import pytest

pytestmark = pytest.mark.full

STUDY = """
description: full width
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60483, seed: 1}
  p1b1: {source: synthetic, train_samples: 334, test_samples: 100, features: 60483, seed: 1}
  p1b2: {source: synthetic, train_samples: 300, test_samples: 60, features: 28204, seed: 1}
  p1b3: {source: synthetic, train_samples: 1000111, test_samples: 14740, features: 29531, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: 1, gpus: 1, loader: chunked}
  - {benchmark: p1b1, scaling: weak, epochs: 4, gpus: 1, loader: chunked}
  - {benchmark: p1b2, scaling: weak, epochs: 2, gpus: 2, loader: chunked}
  - {benchmark: p1b3, scaling: batch, gpus: 2, batch_scaling: linear, batch_size: 5000, loader: chunked}
tables: [icpp2019_table1]
"""
PARAMETERS = {"nt3": 154_922_918, "p1b1": 244_400_085, "p1b2": 29_540_618, "p1b3": 1_557_701}


def test_full_width(fresh):
    fresh.add_study("full", STUDY)
    fresh.snakemake(study="full")
    runs = pd.read_csv(fresh.made / "runs.csv")
    assert (runs.status == "ok").all(), runs.failure_message.tolist()
    assert (runs.peak_memory_mb * runs.gpus < 20 * 1024**3 / 1e6).all(), runs[["benchmark", "peak_memory_mb"]]
    for run in runs.itertuples():
        metrics = json.loads((fresh.results / run.record).with_name("metrics.json").read_text())
        assert metrics["parameters"] == PARAMETERS[run.benchmark]
        history = pd.read_csv((fresh.results / run.record).with_name("history.csv"))
        if len(history) > 1:
            assert history.loss.iloc[-1] < history.loss.iloc[0]
    table = pd.read_csv(fresh.made / "tables" / "icpp2019_table1.csv").set_index("benchmark")
    assert table.loc["p1b3", "train_samples"] == table.loc["p1b3", "published_train_samples"] == 900_100
    assert table.loc["p1b3", "features"] == table.loc["p1b3", "published_features"] == 1_000
    assert table.loc["p1b3", "train_mb"] == pytest.approx(table.loc["p1b3", "published_train_mb"], rel=0.03)
