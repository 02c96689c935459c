"""Ensembles of P1B3, whose rows are joined batch by batch, and the same ensemble over Gloo and over MPI."""

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


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """The study, run over Gloo."""
    project = copy_of_project(tmp_path_factory.mktemp("workloads") / "project")
    project.add_study("joined", STUDY)
    project.snakemake(study="joined")
    return project


def runs_of(results):
    """The runs of the study by the number of members, and what `members.csv` of the pair has. results: of a machine."""
    runs = pd.read_csv(results / "studies" / "joined" / "runs.csv").set_index("ensemble")
    assert (runs.status == "ok").all(), runs.failure_message.tolist()
    return runs, pd.read_csv((results / runs.record[2]).with_name("members.csv"), index_col="member")


def test_rows_that_are_joined_by_batch_are_shared(joined):
    runs, members = runs_of(joined.results)
    assert members.weights_crc32[1] == runs.final_weights_crc32[1], "as the member alone"
    assert members.weights_crc32[0] != members.weights_crc32[1]
    assert members.samples_preprocessed.tolist() == [2 * runs.train_samples[2], 0]
    assert runs.test_r2.notna().all()


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")
def test_gloo_and_mpi_give_equal_weights(joined, monkeypatch):
    if not has_mpi():
        pytest.skip("this Horovod was built without MPI")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    joined.snakemake("--config", "study=joined", "machine=local_mpi", study=None)
    _, over_gloo = runs_of(joined.results)
    runs, over_mpi = runs_of(joined.root / "results" / "local_mpi")
    assert runs.communication_libraries.str.contains("controller mpi").all()
    assert over_mpi.weights_crc32.tolist() == over_gloo.weights_crc32.tolist()
