"""The allreduce sweep, with allreduces of a hundred megabytes per second."""

import pytest
from examples import define, expand
from fake_communicator import FakeCommunicator

from study.communication.allreduce_sweep import SIZES, time_allreduces
from study.records import record


def test_the_slowest_rank_counts():
    communicator = FakeCommunicator(size=2)
    communicator.gathered = [answer for _ in SIZES for answer in ([0.1, 0.2], [[1.0, 4.0], [3.0, 2.0]])]
    assert time_allreduces(communicator, clock=communicator.clock)[0]["seconds"] == [3.0, 4.0]


def test_bus_bandwidth_is_what_a_ring_sends():
    run = define(expand(gpus=4)[0])
    metrics = {"allreduce_sweep": [{"bytes": 8_000_000, "seconds": [2.0, 1.0, 3.0]}]}
    assert record._sweep(run, metrics) == [
        {"bytes": 8_000_000, "repeats": 3, "median_s": 2.0, "busbw_gb_per_s": pytest.approx(0.006)}
    ]
    assert record._sweep(run, {"allreduce_sweep": None}) is None
