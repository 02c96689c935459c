"""Ensembles of P1B3, whose rows are joined by batch, over Gloo and MPI; of NT3, whose lines are decoded by batch."""

import shutil

import pandas as pd
import pytest
from project import copy_of_project, has_mpi

COMMON = "benchmark: p1b3, scaling: weak, epochs: 2, batch_size: 20, learning_rate_scaling: none, loader: npy"
PAIR = f"{COMMON}, ensemble: 2, share_block_samples: 32, preprocessing_ranks: 1"
STUDY = f"""
description: a test
datasets:
  p1b3: {{source: synthetic, train_samples: 600, test_samples: 100, features: 700, seed: 1}}
members:
  second: [{{seed: 1}}]
runs:
  - {{{PAIR}, input_sharing: multi_broadcast}}
  - {{{COMMON}, ensemble: 1, members: second}}
tables: [scaling]
"""
CONCURRENT = f"""
description: a test
datasets:
  p1b3: {{source: synthetic, train_samples: 600, test_samples: 100, features: 700, seed: 1}}
runs:
  - {{{PAIR.replace("ranks: 1", "ranks: 2")}, input_sharing: concurrent_broadcast}}
tables: [scaling]
"""


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """The study, run over Gloo."""
    project = copy_of_project(tmp_path_factory.mktemp("workloads") / "project")
    project.add_study("joined", STUDY)
    project.snakemake(study="joined")
    return project


@pytest.fixture
def over_mpi(joined, monkeypatch):
    """Runs a study of the project over MPI; returns the machine's results."""
    if shutil.which("mpirun") is None or not has_mpi():
        pytest.skip("no mpirun here, or this Horovod was built without MPI")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")

    def run(study):
        joined.snakemake("--config", f"study={study}", "machine=local_mpi", study=None)
        return joined.root / "results" / "local_mpi"

    return run


def runs_of(results, study="joined"):
    """The runs of a study by the number of members, and what `members.csv` of the pair has. results: of a machine."""
    runs = pd.read_csv(results / "studies" / study / "runs.csv").set_index("ensemble")
    assert (runs.status == "ok").all(), runs.failure_message.tolist()
    return runs, pd.read_csv((results / runs.record[2]).with_name("members.csv"), index_col="member")


def test_rows_that_are_joined_by_batch_are_shared(joined):
    runs, members = runs_of(joined.results)
    assert members.weights_crc32[1] == runs.final_weights_crc32[1], "as the member alone"
    assert members.weights_crc32[0] != members.weights_crc32[1]
    assert members.samples_preprocessed.tolist() == [2 * runs.train_samples[2], 0]
    assert runs.test_r2.notna().all()


@pytest.mark.long
def test_gloo_and_mpi_give_equal_weights(joined, over_mpi):
    _, over_gloo = runs_of(joined.results)
    runs, members = runs_of(over_mpi("joined"))
    assert runs.communication_libraries.str.contains("controller mpi").all()
    assert members.weights_crc32.tolist() == over_gloo.weights_crc32.tolist()


@pytest.mark.long
def test_broadcasts_at_the_same_time_give_equal_weights(joined, over_mpi):
    """Both ranks preprocess, and send their blocks to each other at once."""
    joined.add_study("concurrent", CONCURRENT)
    _, over_gloo = runs_of(joined.results)
    runs, members = runs_of(over_mpi("concurrent"), "concurrent")
    assert members.weights_crc32.tolist() == over_gloo.weights_crc32.tolist()
    assert (members.samples_preprocessed > 0).all()
    assert members.samples_preprocessed.sum() == 2 * runs.train_samples[2]
    assert runs.shared_mb[2] > 0
