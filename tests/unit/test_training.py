"""One rank's work with made-up companions: model, learning rate, checks. TensorFlow is real, Horovod is not here."""

import json
import math
import types
import zlib

import numpy as np
import pandas as pd
import pytest
from examples import define, expand, make_data
from fake_communicator import FakeCommunicator

from study import workloads
from study.backends.tensorflow import build, devices
from study.core import configuration, fields
from study.core.errors import StudyError
from study.instruments import phases
from study.training import divergence, rank
from study.training.schedule import Schedule

SPEC = configuration.load_named("benchmarks", "nt3")
devices.limit_threads(1)  # can be set only before TensorFlow's first use in this process


@pytest.fixture
def run_rank(tmp_path):
    """Run rank 0 of a small run: ``run_rank(communicator, **point)`` returns the run and its folder."""

    def run_it(communicator, **point):
        (planned,) = expand(gpus=communicator.size, **point)
        run = define(planned, data_dir=str(tmp_path / "data"))
        make_data(planned, tmp_path / "data")
        rank.run_rank(run, tmp_path / "run", phases.now(), lambda: communicator)
        return run, tmp_path / "run"

    return run_it


@pytest.mark.slow
def test_a_rank_from_start_to_end(run_rank):
    ranks = FakeCommunicator(size=2)
    run, folder = run_rank(ranks, loader="npy")
    history = pd.read_csv(folder / "history.csv")
    assert list(history.epoch) == [1, 2]
    assert set(history) - set(fields.list_columns(fields.EPOCH_FILES)) == {
        "loss",
        "accuracy",
        "val_loss",
        "val_accuracy",
    }
    assert (history.time_s > 0).all()
    assert history.learning_rate.tolist() == pytest.approx([0.002, 0.002])
    metrics = json.loads((folder / "metrics.json").read_text())
    assert 0 <= metrics["test"]["accuracy"] <= 1
    assert len(metrics["ranks"]) == 2
    assert metrics["initial_weights_crc32"] != metrics["ranks"][0]["final_weights_crc32"]
    edges = phases.read_edges(folder / "ranks" / "phases-00000.jsonl")
    assert [(e["phase"], e["edge"]) for e in edges] == [(p, e) for p in phases.PHASES for e in ("begin", "end")]
    assert len(ranks.optimizers) == 1
    (variables,) = ranks.broadcasts
    assert variables >= 10
    assert ranks.closed


def test_weights_that_the_last_step_ruined_are_noticed():
    with pytest.raises(StudyError, match="the loss is not finite after step 20, the last"):
        divergence.check_test_loss({"loss": math.nan, "accuracy": 0.5}, 20)
    divergence.check_test_loss({"loss": 0.7}, 20)


@pytest.mark.slow
def test_what_checkpoints_cost(run_rank):
    """Their size is that of the weights and slots; the restored model has the loss of its epoch, not the last one's."""
    _, folder = run_rank(FakeCommunicator(), loader="npy", scaling="weak", epochs=4, checkpoint_epochs=1)
    metrics = json.loads((folder / "metrics.json").read_text())
    cost, weights_mb = metrics["checkpoints"], 4 * metrics["parameters"] / 1e6
    assert cost["number"] == 3, "none after the last epoch"
    assert cost["state_mb"] == pytest.approx(2 * weights_mb, rel=0.01), "Keras's SGD has a slot per weight"
    assert cost["file_mb"] == pytest.approx(cost["state_mb"], rel=0.01)
    assert cost["restored_loss_error"] < 1e-6
    losses = pd.read_csv(folder / "history.csv").val_loss
    assert abs(losses.iloc[3] / losses.iloc[2] - 1) > 1e-6, "which the comparison would notice"
    assert cost["write_s"] > 0 and cost["restore_s"] > 0


@pytest.mark.slow
def test_arrays_handed_to_keras(run_rank):
    """As many steps of the same batches' sizes, the learning rate as ever; the order of the samples is Keras's."""
    ranks = FakeCommunicator(size=2)
    _, folder = run_rank(ranks, loader="npy", input_pipeline="keras_arrays", scaling="weak", epochs=4)
    history = pd.read_csv(folder / "history.csv")
    assert list(history.epoch) == [1, 2, 3, 4]
    assert history.loss.iloc[-1] < history.loss.iloc[0]
    assert {"val_loss", "val_accuracy"} <= set(history)


@pytest.mark.slow
@pytest.mark.parametrize(("scaling", "size", "rate"), [("linear", 1, 0.001), ("linear", 4, 0.004), ("none", 4, 0.001)])
def test_the_learning_rate_used(run_rank, scaling, size, rate):
    _, folder = run_rank(FakeCommunicator(size=size), learning_rate_scaling=scaling)
    assert pd.read_csv(folder / "history.csv").learning_rate.iloc[-1] == pytest.approx(rate)


def trainer_of(model):
    """What a checksum needs of a trainer."""
    return types.SimpleNamespace(get_trained_weights=lambda: [each.numpy() for each in model.trainable_variables])


class Stub:
    """A model with nothing but a learning rate."""

    def __init__(self, rate):
        import tensorflow as tf

        self.optimizer = types.SimpleNamespace(learning_rate=tf.Variable(rate), lr=None)
        self.optimizer.lr = self.optimizer.learning_rate  # the name that Keras's callback uses


def rates_of(callback, losses, rate=0.008):
    """The learning rate of each epoch, if the epochs end with these validation losses."""
    callback.set_model(Stub(rate))
    callback.on_train_begin()
    rates = []
    for epoch, loss in enumerate(losses):
        callback.on_epoch_begin(epoch)
        rates.append(float(callback.model.optimizer.learning_rate.numpy()))
        callback.on_epoch_end(epoch, {"val_loss": loss})
    return rates


def our_rates(losses, planned, ranks, rate=0.008):
    """The same of this project's schedule."""
    rates, held = [], [rate]
    trainer = types.SimpleNamespace(set_learning_rate=lambda rate: held.append(rate))
    schedule = Schedule(trainer, define(planned), ranks, steps=1)
    for loss in losses:
        schedule.begin_epoch()
        rates.append(held[-1])
        schedule.end_epoch(loss)
    return rates


@pytest.mark.parametrize("patience", [1, 2, 10])
def test_a_plateau_is_what_keras_takes_for_one(patience):
    import tf_keras as keras

    (planned,) = expand(gpus=8, scaling="weak", epochs=20, plateau_epochs=patience)
    drawn = np.random.default_rng(patience)
    losses = [*(0.7 + drawn.normal(0, 0.001, 30)), *np.linspace(0.7, 0.6, 30), *[0.6] * 30, math.nan]
    theirs = keras.callbacks.ReduceLROnPlateau(factor=0.1, patience=patience, min_delta=1e-4)
    rates = our_rates(losses, planned, FakeCommunicator(size=8))
    assert rates == pytest.approx(rates_of(theirs, losses), rel=1e-5)
    assert len(set(rates)) > 3


def test_all_ranks_take_rank_0_s_plateau():
    (planned,) = expand(gpus=2, scaling="weak", plateau_epochs=2)
    ranks = FakeCommunicator(size=2, rank=1)
    ranks.gathered = [[0.5, loss] for loss in (0.5, 0.4, 0.3, 0.2)]
    assert our_rates([0.5, 0.4, 0.3, 0.2], planned, ranks) == pytest.approx([0.002, 0.002, 0.002, 0.0002])


@pytest.mark.slow
def test_each_rank_trains_on_a_part_of_its_own(run_rank):
    _, folder = run_rank(FakeCommunicator(size=3), scaling="weak", sharding="by_rank")
    workload = json.loads((folder / "metrics.json").read_text())["workload"]
    assert (workload["train_samples"], workload["samples_per_rank"]) == (100, 33)


def test_ranks_that_differ_after_the_broadcast_are_refused(run_rank):
    with pytest.raises(StudyError, match="weights differ after the broadcast"):
        run_rank(FakeCommunicator(size=2, agree=False))


@pytest.mark.slow
def test_the_seed_is_the_rank_s_and_the_repeat_s(run_rank):
    benchmark = workloads.load_benchmark("nt3", SPEC)

    def weights(repeat, number):
        run = define(expand(repeats=2)[repeat - 1])
        model = build.compile_model(benchmark, run, FakeCommunicator(size=2, rank=number), (60, 1))
        return rank.compute_checksum(trainer_of(model))

    assert weights(1, 0) == weights(1, 0)
    assert len({weights(1, 0), weights(1, 1), weights(2, 0), weights(2, 1)}) == 4


def test_ranks_agree_by_the_weights_that_are_trained():
    """Moving averages of batch normalisation are of a rank's own batches; a network without them has one checksum."""
    import tf_keras as keras

    normalised = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), normalised, keras.layers.Dropout(0.5)])
    before = rank.compute_checksum(trainer_of(model))
    normalised.moving_mean.assign_add([1, 2])
    assert rank.compute_checksum(trainer_of(model)) == before
    normalised.gamma.assign_add([1, 2])
    assert rank.compute_checksum(trainer_of(model)) != before
    plain = workloads.load_benchmark("nt3", SPEC).build_model((60, 1))
    content = b"".join(each.tobytes() for each in plain.get_weights())
    assert rank.compute_checksum(trainer_of(plain)) == zlib.crc32(content), (
        "as records have it that are older than batch normalisation"
    )
