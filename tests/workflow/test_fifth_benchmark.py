"""A fifth benchmark is two new files and no edit elsewhere: it plans, trains and is in the tables."""

import pandas as pd
import pytest

SPEC = """
title: Wave (a made-up regression)
url_path: wave
files:
  train: {name: wave_train.tsv, split: train, header: true, separator: tab, codes: [{column: site}]}
  test: {name: wave_test.tsv, split: test, header: true, separator: tab, codes: [{column: site}]}
workload: {train_samples: 90, features: 5}
epochs: {weak: 3, minimum_per_rank: 1}
batch_size: 10
learning_rate: 0.01
optimizer: adam
loss: mse
shuffle: true
validation_share: 0.1
model: {dense: [8]}
"""

CODE = '''
"""A made-up benchmark: the mean of a row from its values."""

import numpy as np

from study.workloads import base


class Benchmark(base.Benchmark):
    """Learns the mean of each row."""

    def synthetic_blocks(self, file, shape, seed):
        """Yield the bytes of a file of uniform numbers."""
        rows = np.random.default_rng([seed, len(file)])
        samples = shape[f"{file}_samples"]
        header = "\\t".join(["site", *(f"v{n}" for n in range(shape["features"]))]) + "\\n"
        draw = lambda block: rows.random((len(block), shape["features"]))
        return base.matrix_blocks(header.encode(), [b"here"] * samples, draw, 3, b"0", b"\\t")

    def arrange(self, tables, seed):
        """The last rows validate."""
        files = [tables[file] for file in ("train", "test")]
        train, test = (table.samples(table.numbers.mean(axis=1, keepdims=True)) for table in files)
        first = len(train) - self.validation_samples(len(train))
        return base.Data(train.rows(slice(first)), train.rows(slice(first, None)), test, train.shape[0])

    def build_model(self, shape):
        """Dense layers."""
        from tf_keras import Sequential, layers

        hidden = [layers.Dense(units) for units in self.spec["model"]["dense"]]
        return Sequential([layers.Input(shape), *hidden, layers.Dense(1)])

    def metrics(self):
        """A metric of its own, which nothing else knows."""
        return ["mae"]
'''

STUDY = """
description: a test
datasets:
  wave: {source: synthetic, train_samples: 100, test_samples: 20, features: 5, seed: 1}
runs:
  - {benchmark: wave, scaling: weak, gpus: 2, loader: read_csv, sharding: by_rank}
loading:
  - {benchmark: wave, loader: [read_csv, chunked, dask, npy], repeats: 1}
tables: [scaling, icpp2019_table1, icpp2019_table3, icpp2019_table6, icpp2019_claims]
"""


@pytest.mark.long
def test_a_fifth_benchmark_is_two_files(fresh):
    (fresh.root / "config" / "benchmarks" / "wave.yaml").write_text(SPEC)
    (fresh.root / "scripts" / "study" / "workloads" / "wave.py").write_text(CODE)
    fresh.add_study("waves", STUDY)
    fresh.snakemake(study="waves")
    runs = pd.read_csv(fresh.made / "runs.csv")
    assert (runs.status == "ok").all(), runs.failure_message.tolist()
    assert runs.train_samples.tolist() == [90]
    assert runs.samples_per_rank.tolist() == [45]
    assert {"mae", "validation_mae", "test_mae"} <= set(runs)
    assert (runs.loss < 1).all()
    for table in ("scaling", "icpp2019_table1", "icpp2019_table3", "icpp2019_table6"):
        assert "| wave" in (fresh.made / "tables" / f"{table}.md").read_text()
    assert fresh.plan(study="waves") == {}


def test_an_own_model_that_cannot_keep_a_key_is_refused_before_any_run(fresh):
    """At the dry run, and at the start; not in a run's record."""
    (fresh.root / "config" / "benchmarks" / "wave.yaml").write_text(SPEC)
    noisy = CODE.replace("*hidden, layers", "*hidden, layers.GaussianNoise(0.1), layers")
    (fresh.root / "scripts" / "study" / "workloads" / "wave.py").write_text(noisy)
    refused = "gpus: 1, checkpoint_epochs: [0, 1], loader: [read_csv, dask]"
    fresh.add_study("waves", STUDY.replace("gpus: 2, loader: read_csv", refused))
    for mode in ("--dry-run", "--until=train"):
        done = fresh.snakemake(mode, study="waves", check=False)
        told = done.stdout + done.stderr
        assert done.returncode != 0
        assert "config/studies/waves.yaml: benchmark wave: checkpoint_epochs: a layer draws random numbers" in told
        assert "(2 runs)" in told
        assert "Traceback" not in told
    assert not fresh.results.exists()
