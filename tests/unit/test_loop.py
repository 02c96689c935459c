"""The training loop, with the linear model of the fake framework, whose gradients are exact."""

import dataclasses
import json
import threading

import numpy as np
import pandas as pd
import pytest
from examples import define, expand, make_data
from fake_communicator import FakeCommunicator, ThreadedCommunicator

from study.core.errors import StudyError
from study.experiment import learning_rate
from study.instruments import phases
from study.training import checkpoints, rank


@pytest.fixture
def defined(tmp_path):
    """``defined(**point)``: the definition of a small run whose data are there."""

    def make(**point):
        (planned,) = expand(**{"gpus": 1, "loader": "npy", "scaling": "weak", "epochs": 4, **point})
        make_data(planned, tmp_path / "data")
        run = define(planned, data_dir=str(tmp_path / "data"))
        return dataclasses.replace(run, parameters={**run.parameters, "framework": "fake"})

    return make


def train(run, folder, ranks=None, **options):
    """(metrics.json, history.csv) of a run."""
    rank.run_rank(run, folder, phases.now(), lambda: ranks or FakeCommunicator(), **options)
    return json.loads((folder / "metrics.json").read_text()), pd.read_csv(folder / "history.csv")


def crc(metrics):
    return metrics["ranks"][0]["final_weights_crc32"]


def test_a_row_of_the_history_per_epoch(defined, tmp_path):
    metrics, history = train(defined(), tmp_path / "run")
    assert history.epoch.tolist() == [1, 2, 3, 4]
    assert history.loss.is_monotonic_decreasing
    assert {"val_loss", "val_accuracy", "learning_rate", "time_s", "steps_s"} <= set(history)
    assert (metrics["parameters"], metrics["trainable_parameters"]) == (120, 120)
    assert metrics["test"]["loss"] == pytest.approx(history.val_loss.iloc[-1], rel=0.5)


def test_a_run_is_repeatable_and_its_repeats_differ(defined, tmp_path):
    run = defined()
    other = dataclasses.replace(run, derived=dataclasses.replace(run.derived, seed=run.derived.seed + 1))
    found = [crc(train(each, tmp_path / name)[0]) for name, each in (("a", run), ("b", run), ("c", other))]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    "point",
    [
        {},
        {"plateau_epochs": 1},
        {"emulated_ranks": 2, "warmup_epochs": 1, "warmup": "constant"},
        {"learning_rate_decay": "collapsed", "decay_epochs": 2},
        {"emulated_ranks": 2},
    ],
    ids=str,
)
def test_a_resumed_run_has_the_same_weights(defined, tmp_path, monkeypatch, point):
    """It ends after the second of four epochs, and continues from its checkpoint; bit for bit."""
    monkeypatch.setattr(learning_rate, "PLATEAU_IMPROVEMENT", 10)  # no epoch improves enough, after the first
    run, save = defined(checkpoint_epochs=1, **point), checkpoints.Writer.save

    def save_and_end(writer, epoch, *content):
        save(writer, epoch, *content)
        if epoch == 2:
            writer.close()
            raise InterruptedError

    whole, history = train(run, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(checkpoints.Writer, "save", save_and_end)
        train(run, tmp_path / "resumed")
    resumed, continued = train(run, tmp_path / "resumed")
    assert (whole["resumed_after_epoch"], resumed["resumed_after_epoch"]) == (None, 2)
    assert crc(resumed) == crc(whole)
    assert continued.loss.tolist() == history.loss.tolist()
    assert continued.learning_rate.tolist() == history.learning_rate.tolist()


def test_a_run_that_diverges_ends_with_its_step(defined, tmp_path):
    run = defined(base_learning_rate=1e300)
    with np.errstate(all="ignore"), pytest.raises(StudyError, match="the loss is not finite from step 2 on"):
        train(run, tmp_path / "run")


def test_a_plateau_reduces_the_learning_rate(defined, tmp_path, monkeypatch):
    monkeypatch.setattr(learning_rate, "PLATEAU_IMPROVEMENT", 10)
    run = defined(plateau_epochs=1)
    _, history = train(run, tmp_path / "run")
    assert history.learning_rate.tolist() == pytest.approx([run.learning_rate * each for each in (1, 1, 0.1, 0.01)])


@pytest.mark.parametrize("sharding", ["none", "by_rank"])
def test_emulated_ranks_train_as_real_ones(defined, tmp_path, sharding):
    """Two ranks, as threads that average their gradients, against one that emulates two."""
    emulated, _ = train(defined(emulated_ranks=2, sharding=sharding), tmp_path / "emulated")
    run, every = defined(gpus=2, sharding=sharding), ThreadedCommunicator.several(2)
    threads = [threading.Thread(target=train_quietly, args=(run, tmp_path / "real", each)) for each in every]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    real = json.loads((tmp_path / "real" / "metrics.json").read_text())
    assert len({each["final_weights_crc32"] for each in real["ranks"]}) == 1
    assert real["test"]["loss"] == pytest.approx(emulated["test"]["loss"], rel=1e-12)


def train_quietly(run, folder, ranks):
    """A rank whose files another one writes."""
    rank.run_rank(run, folder, phases.now(), lambda: ranks)
