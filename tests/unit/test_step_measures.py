"""What steps measure: it leaves the weights as they are, and its columns are right for known gradients and times."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from examples import define, expand, make_data
from fake_communicator import FakeCommunicator

from study.backends.tensorflow import devices
from study.backends.tensorflow.step_measures import SUMS, StepMeasures, squared_norm
from study.backends.tensorflow.trainer import KerasTrainer
from study.communication.horovod import nccl_version
from study.core.csv_columns import Columns
from study.core.errors import StudyError
from study.instruments import phases
from study.records import record
from study.training import rank

devices.limit_threads(1)  # can be set only before TensorFlow's first use in this process


@pytest.fixture
def trained(tmp_path):
    """``trained(size, name, **point)``: metrics.json and history.csv of rank 0 of a small run."""

    def train(size, name, **point):
        (planned,) = expand(gpus=size, loader="npy", scaling="weak", batch_size=20, **{"epochs": 2, **point})
        make_data(planned, tmp_path / "data")
        run, folder = define(planned, data_dir=str(tmp_path / "data")), tmp_path / name
        rank.run_rank(run, folder, phases.now(), lambda with_process_sets: FakeCommunicator(size=size))
        return json.loads((folder / "metrics.json").read_text()), pd.read_csv(folder / "history.csv")

    return train


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["nt3", "p1b1", "p1b2", "p1b3"])
def test_weights_are_the_same_bit_for_bit(trained, benchmark, monkeypatch):
    point = {"benchmark": benchmark, "epochs": 4, "sharding": "by_rank"}
    crcs = [trained(2, "noise", **point, gradient_noise_every=1)[0], trained(2, "times", **point)[0]]
    monkeypatch.setattr(StepMeasures, "observe", lambda *_: None)
    crcs.append(trained(2, "nothing", **point)[0])
    assert len({each["ranks"][0]["final_weights_crc32"] for each in crcs}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["tf_data", "keras_arrays"])
def test_a_rank_s_own_time_is_within_that_of_its_steps(trained, pipeline):
    metrics, history = trained(2, "run", input_pipeline=pipeline, epochs=3)
    assert (history.compute_per_step_s > 0).all()
    assert (history.compute_per_step_s * 5 < history.steps_s).all()
    assert metrics["ranks"][0]["compute_per_step_s"] == pytest.approx(history.compute_per_step_s[1:].median())


@pytest.mark.slow
def test_what_is_not_measured_is_left_out(trained):
    with pytest.raises(StudyError, match="it compares the gradients of two ranks or more"):
        trained(1, "alone", gradient_noise_every=1)
    metrics, history = trained(2, "run", gradient_noise_every=0)
    assert metrics["ranks"][0]["gradient_squares"] is None
    assert not [name for name in history if name.startswith("gradient")]
    run = define(expand(gpus=2)[0])
    on_gpus = dataclasses.replace(run, machine={**run.machine, "gpus_per_rank": 1})
    assert StepMeasures(on_gpus, 2).end_epoch(5) == {}
    assert set(StepMeasures(run, 2).end_epoch(5)) == {"compute_per_step_s"}


@pytest.mark.slow
def test_sums_are_no_part_of_the_state(trained, monkeypatch):
    counted = []
    state = KerasTrainer.state
    monkeypatch.setattr(KerasTrainer, "state", lambda self: counted.append(len(state(self))) or state(self))
    trained(2, "run", checkpoint_epochs=1, gradient_noise_every=1, epochs=3)
    assert len(counted) >= 2
    assert len(set(counted)) == 1, "before the first step as after the first epoch"


@pytest.mark.slow
def test_squares_are_of_every_kth_step_and_whole_batches(trained):
    """90 samples in batches of 20: four whole ones and one of 10 an epoch; steps 0, 2, [4: smaller], 6, 8."""
    metrics, _ = trained(2, "run", benchmark="p1b2", gradient_noise_every=2)
    squares = metrics["ranks"][0]["gradient_squares"]
    assert squares["steps"] == [2, 2]
    assert squares["local"] == squares["averaged"], "as the fake's averages are the gradients themselves"


def test_squared_norm():
    assert float(squared_norm([np.full((2, 3), 2.0, np.float32), None, np.float32([3.0])])) == 33.0


def metrics_of(squares, seconds=(0.1, 0.3)):
    return {
        "workload": {"samples_per_rank": 100},
        "ranks": [
            {"compute_per_step_s": each, "gradient_squares": found}
            for each, found in zip(seconds, squares, strict=True)
        ],
    }


def test_the_noise_scale_of_known_gradients():
    """Gradients of one sample: 1 in each of 50 directions, with noise of variance 4. B = trace / |G|^2 = 200 / 50."""
    run, steps, random = define(expand(gpus=4, batch_size=8)[0]), 4000, np.random.default_rng(1)
    local = 1 + random.normal(0, 2 / np.sqrt(8), (4, steps, 50))
    averaged = [float((local.mean(axis=0) ** 2).sum())]
    squares = [{"steps": [steps], "local": [float((of**2).sum())], "averaged": averaged} for of in local]
    found = record._gradient_noise_scale(run, metrics_of(squares, seconds=[0.1] * 4))
    assert found == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize(
    "squares",
    [
        [None, None],
        [{"steps": [0.0], "local": [0.0], "averaged": [0.0]}] * 2,
        [{"steps": [5.0], "local": [None], "averaged": [None]}] * 2,  # diverged
        [{"steps": [5.0], "local": [4.0], "averaged": [1.0]}] * 2,  # a quarter, where noise alone gives half
    ],
)
def test_no_noise_scale(squares):
    assert record._gradient_noise_scale(define(expand()[0]), metrics_of(squares)) is None


def test_the_slowest_and_the_fastest_rank():
    found = record._compute_per_step(metrics_of([None, None]))
    assert found == {"compute_per_step_slowest_s": 0.3, "compute_per_step_fastest_s": 0.1}
    found = record._compute_per_step(metrics_of([None, None], seconds=[None, None]))
    assert set(found.values()) == {None}


def test_the_first_epoch_s_excess():
    def excess(**columns):
        values = {name: np.array(each) for name, each in columns.items()}
        return record._first_epoch_excess(Columns(len(next(iter(values.values()))), values))

    assert excess(steps_s=[5.0, 1.0, 3.0, 2.0]) == 3.0
    assert excess(steps_s=[5.0]) is None
    assert excess(time_s=[5.0, 1.0]) is None


def test_equal_batches_on_all_ranks_are_refused():
    with pytest.raises(StudyError, match=r"gradient_noise_every: all ranks train p1b3 on the same batches"):
        expand(benchmark="p1b3", scaling="weak", batch_size=10, gradient_noise_every=1)


def test_nccl_s_version_codes():
    assert (nccl_version(21805), nccl_version(2804)) == ("2.18.5", "2.8.4")


def test_every_sum_is_of_history_or_metrics():
    assert {*rank.SQUARES.values(), "compute_s"} == set(SUMS)
