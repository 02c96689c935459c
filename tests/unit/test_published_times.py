"""What the plan tells of runs that would take longer than the machine lets them."""

import math

import pytest
from examples import expand

from study import plan
from study.experiment import published_times
from study.experiment.expansion import load_study
from study.machines import machine


def nt3(**point):
    """One run of NT3 at full size."""
    return expand(full_size=True, **{"epochs": 384, "batch_size": 20, **point})[0]


def seconds(on, **point):
    return published_times.estimate_training_s(nt3(**point), machine.load(on))


def test_published_counts_give_the_published_times():
    assert seconds("theta", gpus=24) == 16 * 695  # icpp2019, section 5.1
    assert seconds("theta", gpus=384) == 965
    assert seconds("summit", gpus=96, batch_size=40) == pytest.approx(4 * 12.17)  # icpp2019, Table 2
    assert seconds("theta", gpus=25, epochs=400) == pytest.approx((10662 + 13308) / 2)  # sc18, Tables 4 and 5
    assert seconds("theta_flat", gpus=50, epochs=400) == pytest.approx(7860)  # sc18, Table 6
    assert seconds("summit", gpus=768, scaling="weak", epochs=8) == pytest.approx(8 * (17.66 + 18.05) / 2)


def test_between_and_beyond_published_counts():
    between = 15.65 + (21.82 - 15.65) * math.log(256 / 192) / math.log(2)
    assert seconds("summit", gpus=256, epochs=256) == pytest.approx(between)
    assert seconds("theta", gpus=6) == 64 * 695
    assert seconds("theta_debug", gpus=6) == 64 * 695, "of its base"
    assert seconds("summit", gpus=96, batch_size=50) == pytest.approx(4 * 12.17), "the nearest batch size"


def warnings(on, **changes):
    summary = plan.summarize(load_study("icpp2019"), {**machine.load(on), **changes})
    return [line for line in summary.splitlines() if "Warning" in line]


def test_the_plan_warns_of_runs_that_are_too_long():
    """NT3 on 24 nodes of Theta fits a larger job; on 12, 32 epochs of 695 s do not."""
    (line,) = warnings("theta")
    assert "38 runs (nt3 strong scaling on 1, 6, 12 ranks) are too long" in line
    assert "training alone takes up to 74.1 h; the queue lets a run of these sizes take 2.9 h at most" in line
    assert warnings("summit") == []
