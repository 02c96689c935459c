"""Emulated ranks train as real ranks do; what steps measure, on real ranks, changes nothing and finds the slow one."""

import numpy as np
import pandas as pd
import pytest

NT3 = {"benchmark": "nt3", "scaling": "weak", "epochs": 4, "loader": "npy"}  # 5 steps an epoch, dropout
P1B2 = {"benchmark": "p1b2", "scaling": "weak", "epochs": 5, "batch_size": 6, "loader": "npy", "sharding": "by_rank"}
ALONE = {**NT3, "gpus": 1}
SLOW = 1
QUALITY = ["loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"]


@pytest.fixture(scope="module")
def pair(trained):
    """Two real ranks, one of them slow."""
    return trained({**NT3, "gpus": 2}, "--slow-rank", SLOW)


@pytest.fixture(scope="module")
def emulated_pair(trained):
    return trained({**ALONE, "emulated_ranks": 2}, and_then=[ALONE])


def relative_difference(one, other):
    """The largest of all arrays, relative to each array's norm."""
    return max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(one.weights, other.weights, strict=True))


def test_two_ranks_emulated_with_dropout(pair, emulated_pair):
    assert relative_difference(emulated_pair, pair) < 1e-5
    pd.testing.assert_frame_equal(emulated_pair.history[QUALITY], pair.history[QUALITY], rtol=1e-5)
    assert emulated_pair.metrics["test"] == pytest.approx(pair.metrics["test"], rel=1e-5)


@pytest.mark.long
def test_four_ranks_emulated_each_on_its_part(trained):
    """With regularisation, and a smaller last batch; the last of 20 steps."""
    real, emulated = trained({**P1B2, "gpus": 4}), trained({**P1B2, "gpus": 1, "emulated_ranks": 4})
    assert relative_difference(emulated, real) < 1e-5
    assert emulated.metrics["workload"] == real.metrics["workload"]
    assert emulated.history.val_loss.tolist() == pytest.approx(real.history.val_loss.tolist(), rel=1e-5)


def test_the_slow_rank_shows_in_its_own_time_only(pair):
    """Two layers sleep in each of its steps; the other waits for it, but not in its own computation."""
    fast, slow = (rank["compute_per_step_s"] for rank in pair.metrics["ranks"])
    assert slow > 0.1
    assert fast < slow / 2
    assert pair.history.steps_s.iloc[-1] / 5 > 0.1


def test_the_libraries_are_told(pair):
    assert pair.metrics["communication_libraries"]["controller"] == "gloo"


STUDY = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: 2, gpus: 2, loader: npy}
  - {benchmark: nt3, scaling: weak, epochs: 2, gpus: 1, emulated_ranks: 2, loader: npy}
tables: [scaling]
"""


@pytest.mark.long
def test_from_the_study_to_the_table(project):
    project.add_study("emulated", STUDY)
    project.snakemake(study="emulated")
    runs = pd.read_csv(project.made / "runs.csv").set_index("emulated_ranks")
    real, emulated = runs.loc[1], runs.loc[2]
    assert real.status == emulated.status == "ok"
    for name in ("accuracy", "validation_loss", "test_loss", "learning_rate_used"):
        assert emulated[name] == pytest.approx(real[name], rel=1e-5), name
    assert real.steps_per_epoch == emulated.steps_per_epoch == 3
    assert real.first_epoch_excess_s > 0
    assert 0 < real.compute_per_step_fastest_s <= real.compute_per_step_slowest_s < real.time_per_step_s
    assert pd.isna(emulated.compute_per_step_slowest_s)
    assert "controller gloo" in real.communication_libraries
    table = pd.read_csv(project.made / "tables" / "scaling.csv")
    assert table.gpus.tolist() == [2], "an emulated run's times are in no table"
