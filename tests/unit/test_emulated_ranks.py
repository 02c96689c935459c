"""One rank that stands for several: what is derived from their number, what is refused, and where it is not shown."""

import numpy as np
import pandas as pd
import pytest
from examples import define, expand

import study.report.tables.kinds as kinds
from study.backends.tensorflow import devices
from study.data.order import EpochOrder, OrdersByRank
from study.experiment import learning_rate
from study.experiment.parameters import is_observed

devices.limit_threads(1)  # can be set only before TensorFlow's first use in this process


def test_derived_values_are_those_of_real_ranks():
    for point in ({}, {"scaling": "batch", "batch_scaling": "linear", "batch_size": 5}, {"sharding": "by_rank"}):
        (real,), (emulated,) = expand(gpus=4, **point), expand(gpus=1, emulated_ranks=4, **point)
        for name in ("epochs_per_rank", "batch_size_per_rank", "samples_per_rank"):
            assert getattr(emulated, name) == getattr(real, name)
        assert define(emulated).derived.seed == define(real).derived.seed
        assert define(emulated).derived.nodes == define(emulated).ranks == 1
    assert learning_rate.scale_rate(define(emulated), define(emulated).emulated_ranks) == pytest.approx(0.004)


def test_emulated_runs_give_no_timings():
    (usual,), (emulated,) = expand(gpus=1), expand(gpus=1, emulated_ranks=2)
    assert is_observed(usual, None) and not is_observed(emulated, None)
    assert is_observed(emulated, "emulated_ranks")
    runs = pd.DataFrame([usual.parameters, emulated.parameters])
    assert kinds.select_runs(runs, kinds.gives_timings).emulated_ranks.tolist() == [1]
    assert kinds.select_runs(runs[:0], kinds.gives_timings).columns.tolist() == runs.columns.tolist()


def test_each_rank_has_its_own_order():
    orders = OrdersByRank([7, 8])
    for epoch in (0, 3):
        orders.set(epoch)
        found = orders.positions(50)
        for column, seed in enumerate((7, 8)):
            assert np.array_equal(found[:, column], EpochOrder(seed, epoch).positions(50))
