"""What steps measure: it leaves the weights as they are, and its columns are right for known gradients and times."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from examples import define, expand, make_data
from fake_communicator import FakeCommunicator

from study.backends.tensorflow import devices
from study.backends.tensorflow.step_measures import StepMeasures
from study.backends.tensorflow.trainer import KerasTrainer
from study.communication.horovod import format_nccl_version
from study.core.csv_columns import Columns
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
        rank.run_rank(run, folder, phases.now(), lambda: FakeCommunicator(size=size))
        return json.loads((folder / "metrics.json").read_text()), pd.read_csv(folder / "history.csv")

    return train


@pytest.mark.slow
@pytest.mark.parametrize(
    "benchmark", ["nt3", *(pytest.param(name, marks=pytest.mark.long) for name in ("p1b1", "p1b2")), "p1b3"]
)
def test_weights_are_the_same_bit_for_bit(trained, benchmark, monkeypatch):
    point = {"benchmark": benchmark, "epochs": 4, "sharding": "by_rank"}
    crcs = [trained(2, "times", **point)[0]]
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
def test_what_is_not_measured_is_left_out():
    run = define(expand(gpus=2)[0])
    on_gpus = dataclasses.replace(run, machine={**run.machine, "gpus_per_rank": 1})
    assert StepMeasures(on_gpus).end_epoch(5) == {}
    assert set(StepMeasures(run).end_epoch(5)) == {"compute_per_step_s"}


@pytest.mark.slow
def test_sums_are_no_part_of_the_state(trained, monkeypatch):
    counted = []
    state = KerasTrainer.get_state
    monkeypatch.setattr(KerasTrainer, "get_state", lambda self: counted.append(len(state(self))) or state(self))
    trained(2, "run", checkpoint_epochs=1, epochs=3)
    assert len(counted) >= 2
    assert len(set(counted)) == 1, "before the first step as after the first epoch"


def metrics_of(*seconds):
    return {"workload": {"samples_per_rank": 100}, "ranks": [{"compute_per_step_s": each} for each in seconds]}


def test_the_slowest_and_the_fastest_rank():
    found = record._compute_per_step(metrics_of(0.1, 0.3))
    assert found == {"compute_per_step_slowest_s": 0.3, "compute_per_step_fastest_s": 0.1}
    found = record._compute_per_step(metrics_of(None, None))
    assert set(found.values()) == {None}


def test_the_first_epoch_s_excess():
    def excess(*steps_s):
        return record._first_epoch_excess(Columns(len(steps_s), {"steps_s": np.array(steps_s)}))

    assert (excess(5.0, 1.0, 3.0, 2.0), excess(5.0)) == (3.0, None)


def test_nccl_s_version_codes():
    assert (format_nccl_version(21805), format_nccl_version(2804)) == ("2.18.5", "2.8.4")
