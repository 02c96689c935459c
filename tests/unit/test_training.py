"""One rank's work with made-up companions: model, learning rate, checks. TensorFlow is real, Horovod is not here."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import json

import numpy as np
import pandas as pd
import pytest
from examples import expand

from study import models
from study.core import configuration
from study.core.errors import StudyError
from study.data import loaders
from study.data.conversion import convert
from study.data.tabular import Form
from study.experiment import definition
from study.instruments import phases
from study.models.synthetic import generate
from study.training import learning_rate, rank

SPEC = configuration.load_named("benchmarks", "nt3")
rank.limit_threads(1)  # can be set only before TensorFlow's first use in this process


class FakeRanks:
    """The other ranks agree with this one, or, with ``agree=False``, do not; nothing is sent anywhere."""

    def __init__(self, size=1, agree=True, in_groups=False):
        self.rank, self.size, self.local_rank, self.local_size = 0, size, 0, size
        self.agree = agree
        self.wrapped = self.broadcasted = 0
        self.closed = False
        self.groups = []

    def distributed_optimizer(self, optimizer):
        self.wrapped += 1
        return optimizer

    def broadcast(self, variables):
        self.broadcasted += len(variables)

    def split(self, groups):
        self.groups = groups

    def broadcast_matrix(self, matrix, members):
        assert members[0] == self.rank

    def gather(self, value):
        others = value if self.agree else "something else"
        return [value, *[others] * (self.size - 1)]

    def close(self):
        self.closed = True


def make_data(run, data_dir):
    """The synthetic files of a run, raw and converted."""
    for file, form in run.spec["files"].items():
        raw, matrix = run.dataset.raw(data_dir, file), run.dataset.converted(data_dir, file)
        generate(raw, run.dataset.benchmark, run.spec, run.dataset.definition, file)
        convert(raw, matrix, definition.sidecar(matrix), Form.of(form))


@pytest.fixture
def rank(tmp_path):
    """Run rank 0 of a made-up run: ``rank(ranks, **point)`` returns the run and its folder."""

    def run_rank(ranks, **point):
        (run,) = expand(gpus=ranks.size, **point)
        machine = {"name": "local", **configuration.load_named("machines", "local")}
        content = definition.run_definition(run, machine, str(tmp_path / "data"))
        make_data(run, tmp_path / "data")
        rank.run_rank(content, tmp_path / "run", phases.now(), lambda in_groups: ranks)
        return content, tmp_path / "run"

    return run_rank


def test_a_rank_from_start_to_end(rank):
    ranks = FakeRanks(size=2)
    run, folder = rank(ranks, loader="npy")
    history = pd.read_csv(folder / "history.csv")
    assert list(history.epoch) == [1, 2]
    assert (history.time_s > 0).all()
    assert history.learning_rate.tolist() == pytest.approx([0.002, 0.002])
    metrics = json.loads((folder / "metrics.json").read_text())
    assert 0 <= metrics["test"]["accuracy"] <= 1
    assert len(metrics["ranks"]) == 2
    assert metrics["initial_weights_crc32"] != metrics["ranks"][0]["final_weights_crc32"]
    edges = phases.read(folder / "ranks" / "phases-00000.jsonl")
    assert [(e["phase"], e["edge"]) for e in edges] == [(p, e) for p in phases.PHASES for e in ("begin", "end")]
    assert ranks.wrapped == 1
    assert ranks.broadcasted >= 10
    assert ranks.closed


def test_a_training_that_diverges_is_written_down(rank, monkeypatch):
    monkeypatch.setattr(learning_rate, "scaled", lambda *_: 1e12)
    _, folder = rank(FakeRanks())
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["test"]["loss"] is None
    assert len(pd.read_csv(folder / "history.csv")) == 4


def test_arrays_handed_to_keras(rank):
    """As many steps of the same batches' sizes, the learning rate as ever; the order of the samples is Keras's."""
    ranks = FakeRanks(size=2)
    _, folder = rank(ranks, loader="npy", input_pipeline="keras_arrays", scaling="weak", epochs=4)
    history = pd.read_csv(folder / "history.csv")
    assert list(history.epoch) == [1, 2, 3, 4]
    assert history.loss.iloc[-1] < history.loss.iloc[0]
    assert {"val_loss", "val_accuracy"} <= set(history)


@pytest.mark.parametrize(("scaling", "size", "rate"), [("linear", 1, 0.001), ("linear", 4, 0.004), ("none", 4, 0.001)])
def test_the_learning_rate_used(rank, scaling, size, rate):
    _, folder = rank(FakeRanks(size=size), learning_rate_scaling=scaling)
    assert pd.read_csv(folder / "history.csv").learning_rate.iloc[-1] == pytest.approx(rate)


def test_warm_up_reaches_the_scaled_rate_in_equal_steps(rank):
    """Five steps an epoch: the rate after each epoch of a warm-up of two, from 0.001 to 0.004."""
    _, folder = rank(FakeRanks(size=4), scaling="weak", epochs=3, warmup_epochs=2)
    rates = pd.read_csv(folder / "history.csv").learning_rate.tolist()
    assert rates == pytest.approx([0.0025, 0.004, 0.004])


def test_each_rank_trains_on_a_part_of_its_own(rank):
    _, folder = rank(FakeRanks(size=3), scaling="weak", sharding="by_rank")
    workload = json.loads((folder / "metrics.json").read_text())["workload"]
    assert (workload["train_samples"], workload["samples_per_rank"]) == (100, 33)


def test_ranks_that_differ_after_the_broadcast_are_refused(rank):
    with pytest.raises(StudyError, match="weights differ after the broadcast"):
        rank(FakeRanks(size=2, agree=False))


def test_another_number_of_ranks_than_planned_is_refused(rank):
    ranks = FakeRanks(size=2)
    ranks.size = 2
    (run,) = expand(gpus=4)
    machine = {"name": "local", **configuration.load_named("machines", "local")}
    with pytest.raises(StudyError, match="started 2 ranks, the run has 4"):
        rank._check_ranks(definition.run_definition(run, machine, "data"), ranks)


def test_a_file_that_is_not_the_converted_one_is_refused(rank, tmp_path, monkeypatch):
    monkeypatch.setitem(loaders.CSV_LOADERS, "read_csv", lambda path, form: pd.DataFrame(np.zeros((3, 4))))
    with pytest.raises(StudyError, match=r"\(3, 4\) float32 was loaded"):
        rank(FakeRanks())


def test_the_seed_is_the_rank_s_and_the_repeat_s(rank):
    benchmark = models.get("nt3", SPEC)
    machine = {"name": "local", **configuration.load_named("machines", "local")}

    def weights(repeat, number):
        run = expand(repeats=2)[repeat - 1]
        ranks = FakeRanks(size=2)
        ranks.rank = number
        model = rank.compile_model(benchmark, definition.run_definition(run, machine, "data"), ranks, 60)
        return rank._checksum(model)

    assert weights(1, 0) == weights(1, 0)
    assert len({weights(1, 0), weights(1, 1), weights(2, 0), weights(2, 1)}) == 4
