"""One rank's work with made-up companions: model, learning rate, checks. TensorFlow is real, Horovod is not here."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import json

import numpy as np
import pandas as pd
import pytest

from examples import expand
from study import benchmarks, configuration, definition, grid, phases, training
from study.datasets.conversion import Expected, convert
from study.datasets.scaling import max_abs_scale
from study.datasets.synthetic import generate
from study.errors import StudyError

SPEC = configuration.load_named("benchmarks", "nt3")
training.limit_threads(1)  # can be set only before TensorFlow's first use in this process


class FakeRanks:
    """The other ranks agree with this one, or, with ``agree=False``, do not; nothing is sent anywhere."""

    def __init__(self, size=1, agree=True):
        self.rank, self.size, self.local_rank, self.local_size = 0, size, 0, size
        self.agree = agree
        self.wrapped = self.broadcasted = 0
        self.closed = False

    def distributed_optimizer(self, optimizer):
        self.wrapped += 1
        return optimizer

    def broadcast(self, variables):
        self.broadcasted += len(variables)

    def gather(self, value):
        others = value if self.agree else "something else"
        return [value, *[others] * (self.size - 1)]

    def close(self):
        self.closed = True


def test_parameter_count_at_full_width():
    """Worked out by hand: two convolutions, pools of 1 and 10 (60,483 -> 60,464 -> 60,455 -> 6,045), three layers."""
    convolutions = (20 * 1 * 128 + 128) + (10 * 128 * 128 + 128)
    dense = (6_045 * 128 * 200 + 200) + (200 * 20 + 20) + (20 * 2 + 2)
    model = benchmarks.get("nt3", SPEC).build_model(60_483)
    assert model.count_params() == convolutions + dense == 154_922_918


def test_layers_are_the_paper_s():
    model = benchmarks.get("nt3", SPEC).build_model(100)
    names = [type(layer).__name__ for layer in model.layers]
    assert names == ["Conv1D", "MaxPooling1D"] * 2 + ["Flatten"] + ["Dense", "Dropout"] * 2 + ["Dense"]
    assert [layer.rate for layer in model.layers if type(layer).__name__ == "Dropout"] == [0.1, 0.1]


def test_fewest_features_are_the_fewest_that_build():
    benchmark = benchmarks.get("nt3", SPEC)
    assert benchmark.minimum_features == 38
    assert benchmark.build_model(38).count_params() > 0
    with pytest.raises(ValueError, match="[Nn]egative|[Nn]on-positive|dimension"):
        benchmark.build_model(28)


def test_max_abs_scaling_is_over_both_sets():
    train = np.array([[1, -4, 0], [2, 2, 0]], dtype=np.float32)
    test = np.array([[-8, 1, 0]], dtype=np.float32)
    max_abs_scale(train, test)
    assert np.array_equal(train, np.array([[0.125, -1, 0], [0.25, 0.5, 0]], dtype=np.float32))
    assert np.array_equal(test, np.array([[-1, 0.25, 0]], dtype=np.float32))


def test_preprocessing():
    train = np.array([[1, 2, -4], [0, 4, 2]], dtype=np.float32)
    data = benchmarks.get("nt3", SPEC).preprocess(train, train.copy())
    assert data.x_train.shape == (2, 2, 1)
    assert np.array_equal(data.y_train, np.array([[0, 1], [1, 0]], dtype=np.float32))
    assert np.array_equal(data.x_train[..., 0], np.array([[0.5, -1], [1, 0.5]], dtype=np.float32))
    assert data.x_validation is data.x_test


def make_data(run, data_dir):
    """The synthetic files of a run, raw and converted."""
    for split in ("train", "test"):
        csv, matrix = run.dataset.raw(data_dir, split), run.dataset.converted(data_dir, split)
        generate(csv, "nt3", SPEC, run.dataset.definition, split)
        convert(csv, matrix, definition.sidecar(matrix), Expected(0, 2))


@pytest.fixture
def rank(tmp_path):
    """Run rank 0 of a made-up run: ``rank(ranks, **point)`` returns the run and its folder."""

    def run_rank(ranks, **point):
        (run,) = expand(gpus=ranks.size, **point)
        machine = {"name": "local", **configuration.load_named("machines", "local")}
        content = definition.run_definition(run, machine, str(tmp_path / "data"))
        make_data(run, tmp_path / "data")
        training.run_rank(content, tmp_path / "run", phases.now(), lambda: ranks)
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
    monkeypatch.setattr(training, "effective_learning_rate", lambda *_: 1e12)
    _, folder = rank(FakeRanks())
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["test"]["loss"] is None
    assert len(pd.read_csv(folder / "history.csv")) == 4


@pytest.mark.parametrize(("scaling", "size", "rate"), [("linear", 1, 0.001), ("linear", 4, 0.004), ("none", 4, 0.001)])
def test_the_learning_rate_used(rank, scaling, size, rate):
    _, folder = rank(FakeRanks(size=size), learning_rate_scaling=scaling)
    assert pd.read_csv(folder / "history.csv").learning_rate.iloc[-1] == pytest.approx(rate)


def test_ranks_that_differ_after_the_broadcast_are_refused(rank):
    with pytest.raises(StudyError, match="weights differ after the broadcast"):
        rank(FakeRanks(size=2, agree=False))


def test_another_number_of_ranks_than_planned_is_refused(rank):
    ranks = FakeRanks(size=2)
    ranks.size = 2
    (run,) = expand(gpus=4)
    machine = {"name": "local", **configuration.load_named("machines", "local")}
    with pytest.raises(StudyError, match="started 2 ranks, the run has 4"):
        training._check_ranks(definition.run_definition(run, machine, "data"), ranks)


def test_a_file_that_is_not_the_converted_one_is_refused(rank, tmp_path, monkeypatch):
    monkeypatch.setitem(training.LOADERS, "read_csv", lambda path: np.zeros((3, 4), dtype=np.float32))
    with pytest.raises(StudyError, match=r"\(3, 4\) float32 was loaded"):
        rank(FakeRanks())


def test_the_seed_is_the_rank_s_and_the_repeat_s(rank):
    benchmark = benchmarks.get("nt3", SPEC)
    machine = {"name": "local", **configuration.load_named("machines", "local")}

    def weights(repeat, number):
        run = expand(repeats=2)[repeat - 1]
        ranks = FakeRanks(size=2)
        ranks.rank = number
        model = training.compile_model(benchmark, definition.run_definition(run, machine, "data"), ranks, 60)
        return training._checksum(model)

    assert weights(1, 0) == weights(1, 0)
    assert len({weights(1, 0), weights(1, 1), weights(2, 0), weights(2, 1)}) == 4


def test_the_laptop_study_s_data_are_learnt_in_eight_epochs(tmp_path):
    """About as fast as the paper's NT3, which is at an accuracy of 1 after 8 epochs (icpp2019, Figure 6)."""
    run = next(run for run in grid.load_study("laptop").runs if run.gpus == 1 and run.parameters["scaling"] == "weak")
    machine = {"name": "local", **configuration.load_named("machines", "local")}
    content = definition.run_definition(run, machine, str(tmp_path / "data"))
    make_data(run, tmp_path / "data")
    training.run_rank(content, tmp_path / "run", phases.now(), FakeRanks)
    history = pd.read_csv(tmp_path / "run" / "history.csv")
    assert history.accuracy.iloc[0] < 0.9
    assert history.accuracy.iloc[-1] > 0.9
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]["accuracy"] > 0.95
