"""Energies that cannot be true, or that may not be: they are left out with a reason, wherever they would be used."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from examples import expand
from hypothesis import given, settings
from hypothesis import strategies as st

from study.core.files import write_json
from study.instruments.power.energy import compute_energy
from study.instruments.power.plausibility import (
    JUDGED_UPDATES,
    KINDS,
    KINDS_OF_SENSORS,
    MOST_APART,
    SIGMAS,
    compute_explained_j,
    find_most_w,
)
from study.instruments.power.readings import Counter
from study.instruments.power.telemetry import Series
from study.prediction.settings import measure_run
from study.records.record import make_record, read_record
from study.records.tidy import loading_frame, runs_frame
from study.report.tables import TABLES

RATE = 10
SECONDS = np.arange(0, 20.01, 0.1)
DISAGREE = "doubtful: energy counter and power of a gpu disagree by more than 10%"
OF_NODE = DISAGREE.replace("gpu", "node")
COUNTER = "doubtful: the energy counter of a cpu"
FAST = f"{COUNTER} rose by more than 5,000 W"


def series(power=None, energy=None, freshness=None, kind="gpu", seconds=SECONDS, sensor="nvml"):
    """A device with the given functions of time (s)."""
    columns = [np.full(len(seconds), np.nan) if of is None else np.array([float(of(t)) for t in seconds])
               for of in (power, energy, freshness)]  # fmt: skip
    return Series("n1", sensor, kind, "GPU-0", seconds, *columns)


def test_a_counter_that_freezes_is_doubtful_with_both_figures():
    """Held at one value from 6 s on: 400 J by the counter, 1,600 J by the power."""
    found = compute_energy(series(lambda t: 100, lambda t: 100 * min(t, 6)), 2.0, 18.0, RATE)
    assert (found.best_j, found.counter_j, found.trapezoid_j, found.one_hz_j, found.reason) == (*[None] * 4, DISAGREE)
    assert (found.doubt.counter_j, found.doubt.trapezoid_j) == pytest.approx((400, 1600))
    assert found.doubt.disagreement_pct == pytest.approx(75)


@pytest.mark.parametrize(
    ("watts", "why"),
    [
        (-5e6, "doubtful: a gpu read a negative power"),
        (-0.1, "doubtful: a gpu read a negative power"),
        (5001, "doubtful: a gpu read more than 5,000 W"),
        (math.inf, "doubtful: a gpu read more than 5,000 W"),
        (-math.inf, "doubtful: a gpu read a negative power"),
    ],
)
def test_one_impossible_reading_makes_the_window_doubtful(watts, why):
    """With a counter and without one; also where the window is short, or only its edge is interpolated from it."""
    for energy in (None, lambda t: 100 * t):
        spoilt = series(lambda t: watts if abs(t - 9) < 0.01 else 100, energy)
        for window in ((2.0, 18.0), (8.5, 9.5), (9.05, 10.0)):
            found = compute_energy(spoilt, *window, RATE)
            assert (found.best_j, found.one_hz_j, found.reason) == (None, None, why)
            json.dumps(vars(found.doubt), allow_nan=False)
        assert compute_energy(spoilt, 2.0, 8.0, RATE).best_j == pytest.approx(600), "before it all is well"


@pytest.mark.parametrize(("sensor", "kind"), [*(("nvml", kind) for kind in KINDS), *KINDS_OF_SENSORS])
def test_each_kind_has_a_limit_that_its_devices_reach_but_do_not_pass(sensor, kind):
    most = find_most_w(sensor, kind)
    assert compute_energy(series(lambda t: most, kind=kind, sensor=sensor), 2.0, 18.0, RATE).reason is None
    found = compute_energy(series(lambda t: most + 1, kind=kind, sensor=sensor), 2.0, 18.0, RATE)
    assert found.reason == f"doubtful: a {kind} read more than {most:,.0f} W"


def test_a_counter_of_all_gpus_of_a_node_may_read_more_than_one_gpu():
    """Four GB200 of 1,200 W, with a short peak."""
    assert find_most_w("cray", "gpu") >= 3 * 4 * 1200 > find_most_w("nvml", "gpu")
    assert find_most_w("cray", "node") == KINDS["node"]


def _counted(raw, largest):
    """Totals of a counter that shows ``raw``, one value per reading."""
    values = iter([raw[0], *raw])
    counter = Counter(lambda: next(values), 1, largest)
    return [counter.total() for _ in raw]


def _reset(before_j, largest):
    """50 W of a counter that was set to 0 after 9 s."""
    totals = _counted([int(before_j + 50 * t if t < 9 else 50 * (t - 9)) for t in SECONDS], largest)
    return lambda t: totals[round(10 * t)]


JUDGED = {
    "a counter that froze before the window": (lambda t: 100, lambda t: 100 * min(t, 2), None, "nvml", DISAGREE),
    "a counter that froze after few updates": (lambda t: 100, lambda t: 100 * min(t, 2.3), None, "nvml", DISAGREE),
    "a sensor that stops counting its updates": (
        lambda t: 100, lambda t: 100 * min(t, 3), lambda t: int(10 * min(t, 3)), "nvml", DISAGREE),
    "a frozen power, and nobody can tell which is wrong": (lambda t: 10, lambda t: 100 * t, None, "nvml", DISAGREE),
    "9 % less power, of the larger one": (lambda t: 91, lambda t: 100 * t, None, "nvml", None),
    "9 % less counted": (lambda t: 100, lambda t: 91 * t, None, "nvml", None),
    "11 % less power": (lambda t: 89, lambda t: 100 * t, None, "nvml", DISAGREE),
    "a counter that goes back": (None, lambda t: 100 * t - 500 * (t >= 9), None, "nvml", f"{COUNTER} went back"),
    "54 kW, though it may update once a second": (None, lambda t: 54_000 * t, None, "nvml", FAST),
    "4.9 kW": (None, lambda t: 4_900 * t, None, "nvml", None),
    "4.9 kJ once a second": (None, lambda t: 4_900 * int(t), None, "nvml", None),
    "it stands still after 100 updates in 10 s": (
        None, lambda t: 100 * min(t, 10), None, "rapl", f"{COUNTER} stood still for 8 s"),
    "it stands still for 10 s of 0.05 W": (
        lambda t: 0.05 if 5 <= t < 15.05 else 100, lambda t: 100 * (min(t, 5) + max(0, t - 15)), None, "nvml", None),
    "it updates once a second": (None, lambda t: 100 * int(t), None, "nvml", None),
    "RAPL's of 262 kJ, which a suspend set to 0, did not wrap": (None, _reset(0, 262_143), None, "nvml", FAST),
    "RAPL's at 62 of 65.5 kJ, though by the wrap it is only 3.5 kJ": (None, _reset(62_000, 65_535), None, "rapl", FAST),
}  # fmt: skip


@pytest.mark.parametrize("case", JUDGED)
def test_a_counter_is_doubtful_where_it_cannot_be_true(case):
    power, energy, freshness, sensor, reason = JUDGED[case]
    device = series(power, energy, freshness, "gpu" if power else "cpu", sensor=sensor)
    found = compute_energy(device, 2.0, 18.0, RATE)
    taken = pytest.approx(energy(18) - energy(2), abs=100 * 18 if "once" in case else 1)
    assert (found.best_j, found.reason) == (None if reason else taken, reason)


def test_a_counter_that_is_read_once_a_second_may_not_stand_still_for_three_readings():
    """RAPL's updates each millisecond; it is frozen from 20 to 39 s."""
    frozen = series(None, lambda t: 100 * (t if t < 20 else max(20, t - 19)), kind="cpu", seconds=np.arange(0, 70.0),
                    sensor="rapl")  # fmt: skip
    assert compute_energy(frozen, 2, 62, 1).reason == f"{COUNTER} stood still for 19 s"


def test_a_counter_that_wraps_is_as_good_as_one_that_does_not():
    """50 W; it wraps after 255 J, four times in all."""
    totals = _counted([int(50 * t + 1e-6) % 256 for t in SECONDS], 255)
    found = compute_energy(series(lambda t: 50, lambda t: totals[round(10 * t)], kind="cpu"), 2.0, 18.0, RATE)
    assert (found.reason, found.best_j) == (None, pytest.approx(800))


def test_a_short_window_is_judged_by_the_whole_run():
    """With 19 updates by themselves they are not judged, and the counter is taken."""
    apart = series(lambda t: 50 if 2 < t < 4 else 100, lambda t: 100 * t)
    assert compute_energy(apart, 2.0, 3.95, RATE).best_j == pytest.approx(195)
    assert compute_energy(apart, 2.0, 4.05, RATE).reason == DISAGREE
    slow = series(lambda t: 50, lambda t: 100 * int(t), seconds=SECONDS[SECONDS < 19.05])
    assert compute_energy(slow, 1.0, 18.0, RATE).best_j == pytest.approx(1700), "one a second, 19 in all"
    always = series(lambda t: 50, lambda t: 100 * t)
    assert compute_energy(always, 2.0, 3.5, RATE).reason == f"{DISAGREE} over the run"


def test_a_counter_may_wrap_unseen_in_a_long_gap():
    """RAPL's of 65.5 kJ, at up to 5 kW, after 13.1 s."""
    for gap_s, why in (
        (12, None),
        (14, "doubtful: the energy counter of a cpu was not read for 14 s and may have wrapped"),
    ):
        seconds = np.concatenate([np.arange(0, 10.01, 0.1), np.arange(10 + gap_s, 40, 0.1)])
        rapl = series(None, lambda t: 100 * t, kind="cpu", sensor="rapl", seconds=seconds)
        assert compute_energy(rapl, 2.0, 38.0, RATE).reason == why


def test_a_counter_that_the_driver_resets_makes_its_window_doubtful():
    """Neither lost nor bridged: before and after it all is well."""
    totals = _counted([int(8_000 + 100 * t if t < 9 else 100 * (t - 9)) for t in SECONDS], None)
    reset = series(None, lambda t: totals[round(10 * t)], kind="gpu")
    assert compute_energy(reset, 2.0, 18.0, RATE).reason == "doubtful: the energy counter of a gpu went back"
    assert compute_energy(reset, 2.0, 8.5, RATE).best_j == pytest.approx(650)
    assert compute_energy(reset, 9.5, 18.0, RATE).best_j == pytest.approx(850)


BUSY, GAP = np.arange(0, 60.01, 0.1), (3.0, 31.0)


def _drawn(t):
    """350 W from 30 to 50 s, else 60 W: power and what a counter has counted."""
    return 350 if 30 <= t < 50 else 60, 60 * t + 290 * (min(max(t, 30), 50) - 30)


def test_a_phase_far_from_a_gap_is_not_judged_by_a_guess_over_it():
    seconds = BUSY[(GAP[0] >= BUSY) | (GAP[1] <= BUSY)]
    found = compute_energy(series(lambda t: _drawn(t)[0], lambda t: _drawn(t)[1], seconds=seconds), 51.0, 52.5, RATE)
    assert (found.reason, found.best_j) == (None, pytest.approx(90))


@pytest.mark.parametrize("spoilt", ["gap", "spike"])
def test_a_wrong_counter_is_seen_beside_a_gap_or_an_impossible_reading(spoilt):
    """It counts half. Power changes while it is not read, or one reading is far off: neither explains that."""
    seconds = np.concatenate([np.arange(0, 20, 0.1), np.arange(60, 130, 0.1)]) if spoilt == "gap" else BUSY
    power = lambda t: 350 if 40 <= t < 100 else 60  # noqa: E731
    half = series(power, lambda t: 30 * t + 145 * (min(max(t, 40), 100) - 40), seconds=seconds)
    if spoilt == "spike":
        half.power_w[10] = -5e6
    window = (110.0, 111.5) if spoilt == "gap" else (20.0, 21.5)
    assert compute_energy(half, *window, RATE).reason == f"{DISAGREE} over the run"


def test_a_permitted_gap_in_a_window_makes_no_counter_doubtful():
    """5.5 s of 60 s without readings, in which the power fell from 300 to 30 W: the integral is a guess there."""
    seconds = np.concatenate([np.arange(-5, 20.01, 0.1), np.arange(25.5, 65, 0.1)])
    power = lambda t: 300 if 14 <= t < 20.05 else 30  # noqa: E731
    gpu = series(power, lambda t: 30 * t + 270 * (min(max(t, 14), 20.05) - 14), seconds=seconds)
    found = compute_energy(gpu, 0.0, 60.0, RATE)
    assert (found.doubt, found.best_j) == (None, pytest.approx(30 * 60 + 270 * 6.05, rel=0.01))


def test_a_frozen_counter_is_seen_by_a_slow_sampler_and_across_a_gap():
    slow = series(lambda t: 350, lambda t: 350 * min(t, 4), seconds=np.arange(0, 20, 0.6))
    assert compute_energy(slow, 2.0, 7.5, RATE).reason == f"{DISAGREE} over the run", "of 9 updates itself"
    seconds = BUSY[(BUSY <= 20) | (BUSY >= 30)]
    apart = series(lambda t: 100, lambda t: 100 * min(t, 15), seconds=seconds)
    assert compute_energy(apart, 2.0, 50.0, RATE).reason == f"{DISAGREE} over the run"


def _read(power, period, seconds, lag_s=0.0):
    """A right counter and its power, as a mean over ``lag_s``, at these times; ``power`` repeats after ``period``."""
    fine = np.arange(seconds[0] - 2, seconds[-1] + 1, 0.001)
    counts = np.concatenate([[0], np.cumsum(power(fine % period if period else fine))[:-1] * 0.001])
    mean = (np.interp(seconds, fine, counts) - np.interp(seconds - lag_s, fine, counts)) / (lag_s or 1)
    watts = mean if lag_s else power(seconds % period if period else seconds)
    nothing = np.full(len(seconds), np.nan)
    return Series("n1", "nvml", "gpu", "GPU-0", seconds, watts, np.interp(seconds, fine, counts), nothing)


@pytest.mark.parametrize("rate", [10, 2])
@pytest.mark.parametrize("period", [0.1, 0.37, 0.5])
def test_power_that_changes_faster_than_it_is_read_is_not_doubtful(rate, period):
    """Steps of 350 and 100 W, of about the distance between two readings, each at a random moment of its interval."""
    random = np.random.default_rng(1)
    for length in (25 / rate, 20):
        for _ in range(20):
            seconds = (np.arange(30 * rate) + random.random(30 * rate)) / rate
            found = compute_energy(
                _read(lambda t: np.where(t < period / 2, 350, 100), period, seconds), 3, 3 + length, rate
            )
            assert (found.reason, found.best_j) == (None, pytest.approx(225 * length, rel=0.1))


@pytest.mark.parametrize("length", [2.2, 2.5, 5])
def test_power_that_is_a_mean_of_the_last_second_is_not_doubtful(length):
    """Where 60 W become 350 W at the window's begin."""
    gpu = _read(lambda t: np.where((t >= 5) & (t < 5 + length), 350, 60), None, SECONDS, lag_s=1.0)
    found = compute_energy(gpu, 5, 5 + length, RATE)
    assert (found.reason, found.best_j) == (None, pytest.approx(350 * length, rel=0.01))


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.85])
def test_a_frozen_counter_of_a_changing_power_is_doubtful_all_the_same(share):
    gpu = _read(lambda t: np.where(t < 0.2, 350, 100), 0.37, SECONDS)
    froze = np.interp(20 * share, gpu.seconds, gpu.energy_j)
    gpu.energy_j[:] = np.minimum(gpu.energy_j, froze)
    assert compute_energy(gpu, 0.5, 19.5, RATE).reason.startswith("doubtful: ")


@pytest.mark.parametrize("watts", [6.9, 8.9, 10.9])
@pytest.mark.parametrize("length", [2.2, 5.0, 60.0])
def test_whole_watts_of_a_small_component_are_not_doubtful(watts, length):
    """Cray's counters cut off what is less than a watt or a joule."""
    seconds = np.arange(0, 70, 0.1)
    device = series(lambda t: int(watts), lambda t: int(watts * t), lambda t: round(10 * t), "memory", seconds, "cray")
    found = compute_energy(device, 3, 3 + length, RATE)
    assert (found.reason, found.best_j) == (None, pytest.approx(watts * length, abs=1.1))


def test_a_counter_of_a_device_that_draws_nothing_may_stand_still():
    off = series(lambda t: 0, lambda t: 0, lambda t: round(10 * t), sensor="cray")
    assert compute_energy(off, 2.0, 18.0, RATE).best_j == 0


FAULTS = st.one_of(
    st.none(),
    st.tuples(st.just("frozen"), st.floats(0, 20)),
    st.tuples(st.just("scaled"), st.floats(0, 4)),
    st.tuples(st.just("jump"), st.floats(-1e7, 1e7)),
)


def _spoilt(fault, power, energy):
    """(power, energy) with a fault of the counter."""
    if fault is None:
        return power, energy
    how, value = fault
    if how == "frozen":
        return power, lambda t: energy(min(t, value))
    if how == "scaled":
        return power, lambda t: value * energy(t)
    return power, lambda t: energy(t) + (value if t > 10 else 0)


@settings(deadline=None)
@given(
    watts=st.floats(20, 500),
    swing=st.floats(0, 1),
    fault=FAULTS,
    spike=st.one_of(st.none(), st.tuples(st.integers(0, 200), st.floats(-1e8, 1e8))),
    begin=st.floats(0, 15),
    length=st.floats(0.05, 19),
)
def test_no_energy_is_negative_or_wrong_in_silence(watts, swing, fault, spike, begin, length):
    """Power watts x (1 + swing x sin t): an energy that is told is its integral, but for what the threshold allows."""

    def energy(t):
        return watts * (t - swing * (math.cos(t) - 1))

    power, counter = _spoilt(fault, lambda t: watts * (1 + swing * math.sin(t)), energy)
    device = series(power, counter, sensor="occ")  # its power does not lag
    if spike:
        device.power_w[spike[0]] = spike[1]
    end = min(begin + length, 20.0)
    found = compute_energy(device, begin, end, RATE)
    if found.best_j is None:
        assert found.reason
        return
    assert found.best_j >= 0
    assert device.power_w[(device.seconds >= begin) & (device.seconds <= end)].min(initial=0) >= 0
    if (end - begin) * RATE >= JUDGED_UPDATES + 1:
        explained = compute_explained_j(device, (begin, end))
        most = max(MOST_APART * max(found.counter_j, found.trapezoid_j), explained)
        assert abs(found.counter_j - found.trapezoid_j) <= most + 1e-6
        if not spike:  # then the power is right
            steps = (end - begin) * RATE + 2  # each changes the power by at most watts / RATE
            assert explained <= SIGMAS * math.sqrt(steps / 2) * watts / RATE**2 + 1e-6
            right = energy(end) - energy(begin)
            assert abs(found.best_j - right) <= MOST_APART / (1 - MOST_APART) * (right + explained) + explained + 0.01


@pytest.fixture
def runs(make_run, tmp_path):
    """The tidy table of two repeats with a node's energy; of the second one it is doubtful in the whole or a phase."""

    def build(where):
        planned = list(expand(repeats=2))
        for number, run in enumerate(planned):
            folder = make_run(run)
            record = make_record(folder)
            part = {
                "energy_j": 50.0,
                "trapezoid_j": 50.0,
                "one_hz_j": 50.0,
                "gap_s": 0.0,
                "reason": None,
                "doubtful": None,
            }
            doubt = {"host": "n1", "device": "node", "why": OF_NODE, "counter_j": 4.0, "trapezoid_j": 16.0,
                     "disagreement_pct": 75.0}  # fmt: skip
            empty = dict.fromkeys(("energy_j", "trapezoid_j", "one_hz_j"))
            bad = {**part, **empty, "reason": OF_NODE, "doubtful": [doubt]}
            none = {**part, **empty, "reason": "no sensor"}
            parts = {name: bad if number and name == where else part for name in ("run", "train")}
            power = record["power"] | {
                "components": dict.fromkeys(("gpu", "cpu", "memory"), none) | {"node": parts["run"]},
                "phases": {"train": dict.fromkeys(("gpu", "cpu", "memory"), none) | {"node": parts["train"]}},
                "energy_job_j": parts["run"]["energy_j"], "energy_per_gpu_j": parts["run"]["energy_j"],
                "energy_window_s": 8.0, "reason": parts["run"]["reason"],
                "source": "measured" if parts["run"]["energy_j"] else None,
                "energy_by_phase_j": {"train": parts["train"]["energy_j"]},
            }  # fmt: skip
            write_json(folder / "record.json", {**record, "power": power})
            read_record(folder / "record.json")
        return runs_frame(planned, {"nt3": "c0de"}, tmp_path / "local")

    return build


def test_a_doubtful_energy_is_an_empty_cell_with_its_reason(runs):
    found = runs("run")
    good, bad = (row for _, row in found.iterrows())
    assert (good["energy_job_j"], good["power_reason"], good["doubtful_energy"]) == (50.0, None, None)
    assert pd.isna(bad[["energy_job_j", "energy_per_gpu_j", "node_energy_j", "node_power_w", "samples_per_j",
                        "energy_delay_product_js"]]).all()  # fmt: skip
    assert (bad["power_reason"], bad["doubtful_energy"]) == (OF_NODE, "node")
    table = TABLES["scaling"].make(found, loading_frame([], "c0de", "."))
    assert table.frame["energy_job_j"].tolist() == [50.0], "the mean is of the good repeat"
    assert table.frame["power_reason"].tolist() == [OF_NODE]
    assert f"missing power or energy: {OF_NODE}" in table.notes


def test_no_prediction_uses_a_doubtful_energy(runs):
    """Nor the energy of the GPUs in place of a job's, of which a part is doubtful: others have the job's."""
    _, bad = (row for _, row in runs("run").iterrows())
    assert math.isnan(measure_run(bad)["energy_per_rank_j"])
    assert math.isnan(measure_run(pd.Series({**bad, "energy_per_gpu_j": 5.0}))["energy_per_rank_j"])
