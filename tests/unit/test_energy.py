"""Energy of a window, worked out by hand, and what is refused to be told."""

from dataclasses import replace

import numpy as np
import pytest

from study.instruments.power.energy import compute_energy
from study.instruments.power.telemetry import Series, read_series

RATE = 10


def series(power=None, energy=None, freshness=None, seconds=None):
    seconds = np.arange(0, 10.01, 0.1) if seconds is None else np.asarray(seconds, dtype=float)
    nothing = np.full(len(seconds), np.nan)

    def values(what):
        return nothing if what is None else np.array([what(t) for t in seconds], dtype=float)

    return Series("n1", "nvml", "gpu", "GPU-0", seconds, values(power), values(energy), values(freshness))


def test_edges_between_ticks_are_interpolated():
    """Power 20 t W: between 2.05 and 5.05 s, 10 x (5.05^2 - 2.05^2) J."""
    found = compute_energy(series(lambda t: 20 * t, lambda t: 10 * t**2), 2.05, 5.05, RATE)
    exact = 10 * (5.05**2 - 2.05**2)
    assert (found.reason, found.gap_s) == (None, 0)
    assert found.trapezoid_j == pytest.approx(exact, rel=1e-4)
    assert found.counter_j == pytest.approx(exact, rel=1e-3)


def test_once_a_second_misses_what_lies_between():
    """200 W in the second half of each second: the paper's view sees the first half only."""
    found = compute_energy(series(lambda t: 200 if t % 1 > 0.45 else 100), 2.0, 6.0, RATE)
    assert (found.counter_j, found.best_j) == (None, found.trapezoid_j), "without a counter the trapezoid is taken"
    assert found.one_hz_j == pytest.approx(400)
    assert found.trapezoid_j == pytest.approx(600, rel=0.1)
    rising = replace(series(lambda t: 100 * t, seconds=np.arange(1.05, 5, 0.1)), sensor="occ")
    assert compute_energy(rising, 1.0, 4.0, RATE).one_hz_j == pytest.approx(105 + 195 + 295), "the first is of 1.05 s"


def test_the_counter_is_the_better_one():
    """A burst between two ticks is in the counter and not in the sampled power."""
    found = compute_energy(series(lambda t: 100, lambda t: 100 * t + (20 if t > 3.05 else 0)), 2.0, 5.0, RATE)
    assert found.best_j == found.counter_j == pytest.approx(320)
    assert found.trapezoid_j == pytest.approx(300)


def test_a_sensor_that_seldom_updates_is_unresolved():
    """A counter that moves once a second tells nothing of 0.9 s, however often it is read."""
    slow = series(None, lambda t: 100 * int(t))
    assert "unresolved: 1 update of" in compute_energy(slow, 2.5, 3.4, RATE).reason
    assert compute_energy(slow, 1.0, 9.0, RATE).counter_j == pytest.approx(800)


def test_gaps_are_told():
    seconds = [*np.arange(0, 3, 0.1), *np.arange(5, 10.01, 0.1)]
    found = compute_energy(series(lambda t: 100, lambda t: 100 * t, seconds=seconds), 1.0, 8.0, RATE)
    assert found.gap_s == pytest.approx(2.1)
    assert found.counter_j == pytest.approx(700), "the counter went on counting"


@pytest.mark.parametrize(
    ("window", "joules"),
    [((0, 30), None), ((30, 50), None), ((0, 8), 480), ((0, 60), 60 * 40 + 350 * 20), ((42, 58), 350 * 8 + 60 * 8)],
)
def test_a_counter_is_not_interpolated_over_a_long_gap(window, joules):
    """60 W, and 350 W from 30 to 50 s; no reading from 10 to 40 s: what it counted until 30 s is unknown."""
    seconds = np.concatenate([np.arange(0, 10.01, 0.1), np.arange(40, 60.01, 0.1)])
    counter = lambda t: 60 * t + 290 * (min(max(t, 30), 50) - 30)  # noqa: E731
    for power in (None, lambda t: 350 if 30 <= t < 50 else 60):
        found = compute_energy(series(power, counter, seconds=seconds), *window, RATE)
        assert found.best_j == (None if joules is None else pytest.approx(joules, rel=0.01))
        if joules is None:
            gap = "power for 20 of" if window[0] == 0 else "power for 10 of"
            what = "the counter for 30 s around an edge of" if power is None else gap
            assert found.reason == f"no reading of {what} {window[1] - window[0]} s"


def test_a_sampler_that_is_slower_than_asked_gives_integrals_too():
    """Each 0.6 s instead of 0.1 s: its readings are few, but none is missing."""
    found = compute_energy(series(lambda t: 100, seconds=np.arange(0, 10, 0.6)), 1.0, 6.0, RATE)
    assert found.best_j == pytest.approx(500)
    assert found.gap_s == pytest.approx(4.8), "by the rate that was asked for"


def test_time_without_readings_of_a_lost_sensor_is_a_gap():
    """It ends at 5 s; the window goes on to 9 s."""
    found = compute_energy(series(lambda t: 100, lambda t: 100 * t, seconds=np.arange(0, 5.01, 0.1)), 1.0, 9.0, RATE)
    assert (found.best_j, found.reason) == (None, "the sampler does not cover it")
    assert found.gap_s == pytest.approx(4.0)


@pytest.mark.parametrize("known", [lambda t: t <= 0.4, lambda t: t >= 9.6])
def test_a_device_that_gives_no_more_values_is_not_covered(known):
    """Its rows are there, but they are empty, as of a GPU that is lost: its last value is not held on to."""
    device = series(lambda t: 100 if known(t) else np.nan)
    found = compute_energy(device, 0.0, 10.0, RATE)
    assert (found.best_j, found.reason) == (None, "the sampler does not cover it")
    assert found.gap_s == pytest.approx(9.6, abs=0.01)


def test_an_integral_over_a_long_gap_is_a_guess():
    """Power is unknown for 1 s of 8 s, which is more than a tenth; of 8.1 s it would be known in 0.9 s more."""
    device = series(lambda t: np.nan if 3.05 < t < 3.95 else 100)
    found = compute_energy(device, 1.0, 9.0, RATE)
    assert (found.best_j, found.one_hz_j, found.reason) == (None, None, "no reading of power for 1 of 8 s")
    assert found.gap_s == pytest.approx(1.0)
    assert compute_energy(device, 0.0, 10.0, RATE).reason is None, "a tenth is taken"
    with_counter = series(lambda t: np.nan if 3.05 < t < 6.95 else 100, lambda t: 100 * t)
    assert compute_energy(with_counter, 1.0, 9.0, RATE).best_j == pytest.approx(800), "a counter goes on counting"


def test_power_in_a_gap_may_be_any_that_was_read():
    """0.7 s between two readings of 100 W, while 1,000 W was read elsewhere: 630 of 2,165 J are uncertain."""
    device = series(lambda t: np.nan if 4.05 < t < 4.65 else 500 if t < 2.05 else 100 if t < 7.95 else 1000)
    assert "in which it changed: 29 % of the energy" in compute_energy(device, 1.0, 9.0, RATE).reason


def mean_power(change_s):
    """100 W until ``change_s``, then 300 W, as a sensor tells it whose power is the mean over the last second."""
    return series(lambda t: 100 + 200 * min(1.0, max(0.0, t - change_s)))


def test_power_that_is_a_mean_over_a_second_has_no_energy_of_a_short_window_in_which_it_changed():
    """300 W from 3 s on: 300 J until 4 s, of which the means tell 200 J, and 2,100 J until 10 s but told as 2,000."""
    late = mean_power(3.0)
    assert late.compute_integral_j(3.0, 4.0) == pytest.approx(200)
    short = compute_energy(late, 3.0, 4.0, RATE)
    told = "power is a mean over 1 s, and changed: 50 % of the energy in 1 s is uncertain"
    assert (short.best_j, short.reason) == (None, told)
    assert compute_energy(late, 3.0, 10.0, RATE).best_j == pytest.approx(2000)
    assert compute_energy(late, 5.0, 6.0, RATE).best_j == pytest.approx(300), "it did not change"
    instant = replace(late, average_power_w=np.full(len(late.seconds), 150.0))
    assert compute_energy(instant, 3.0, 4.0, RATE).best_j == pytest.approx(200), "the mean is another column"
    same = replace(late, average_power_w=late.power_w)
    assert compute_energy(same, 3.0, 4.0, RATE).best_j is None
    quick = replace(late, sensor="occ")
    assert compute_energy(quick, 3.0, 4.0, RATE).best_j == pytest.approx(200), "its power is that of the moment"
    counted = replace(late, energy_j=np.interp(late.seconds, [0, 3, 10], [0, 300, 2400]))
    assert compute_energy(counted, 3.0, 4.0, RATE).best_j == pytest.approx(300), "a counter has no lag"


def test_telemetry_is_read_back(tmp_path):
    (tmp_path / "t.csv").write_text(
        "wall_ns,monotonic_ns,host,sensor,kind,device,power_w,average_power_w,energy_j,freshness,utilization_pct,memory_mb\n"
        "1,2000000000,n1,rapl,cpu,package-0,,,0.5,,,\n"
        "1,1000000000,n1,rapl,cpu,package-0,,,0.25,,,\n"
        "1,1000000000,n1,rapl,memory,package-0-dram,,,0.1,,,\n"
    )
    cpu, memory = read_series(tmp_path / "t.csv")
    assert (cpu.kind, memory.kind) == ("cpu", "memory")
    assert cpu.seconds.tolist() == [1, 2]
    assert cpu.energy_j.tolist() == [0.25, 0.5]
    assert np.isnan(cpu.power_w).all()
