"""Whether a GPU's meters are right: its telemetry of a run of benchmark ``gpu_load``, whose loads are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from study.contrib.gpu_check.verdicts import Verdicts
from study.instruments.power import energy
from study.instruments.power.plausibility import find_lag_s
from study.instruments.power.telemetry import Series, Values

RATE_HZ = 20  # of the sampler in the study's runs
AGREE = 0.03  # energy counter and integral of power, of the larger one
RISE = 1.2  # a full load must raise power and utilisation above this times the idle value
ABOVE_LIMIT = 1.1  # power may exceed its limit for a moment
LONGEST_UPDATE_S = 1.0
LEAST_CHANGES = 5
WINDOW_SLACK = 1.25  # for two updates of the sensor and two readings
BEFORE_S, LAST_S = 1.0, 0.5
COLUMNS = {  # of telemetry.csv: name in words
    "energy_j": "energy counter",
    "power_w": "power",
    "average_power_w": "average power",
    "utilization_pct": "utilisation",
}


@dataclass(frozen=True)
class Gpu:
    """A GPU under load.

    series: its readings. windows: {load: (begin, end)}, monotonic seconds. limit_w: its power limit, None if unknown.
    """

    series: Series
    windows: Mapping[str, Sequence[float]]
    limit_w: float | None

    def select(self, column: str, begin: float, end: float) -> tuple[Values, Values]:
        """(seconds, values) of the known readings of a column from ``begin`` to ``end``."""
        seconds, values = self.series.select_readings(getattr(self.series, column))
        inside = (seconds >= begin) & (seconds <= end)
        return seconds[inside], values[inside]


def judge_meters(verdicts: Verdicts, gpu: Gpu) -> None:
    """Energy at each load, power and utilisation against the load, update periods and averaging windows."""
    verdicts.gpu = gpu.series.name
    for load in ("idle", "full", "alternating"):
        _judge_energy(verdicts, gpu, load)
    _judge_limit(verdicts, gpu)
    _judge_rise(verdicts, gpu, "power_w", "W")
    _judge_rise(verdicts, gpu, "utilization_pct", "%")
    for column in ("energy_j", "power_w"):
        _judge_updates(verdicts, gpu, column)
    for column in ("power_w", "average_power_w"):
        _judge_window(verdicts, gpu, column)


def _judge_energy(verdicts: Verdicts, gpu: Gpu, load: str) -> None:
    """Whether the counter's energy and the integral of power agree, by the project's own computation of both."""
    check, expected = f"energy counter against power, {load} load", f"at most {AGREE:.0%} apart"
    begin, end = gpu.windows[load]
    measured = energy.compute_energy(gpu.series, begin, end, RATE_HZ)
    energies = measured.doubt or measured
    counter_j, integral_j = energies.counter_j, energies.trapezoid_j
    if counter_j is not None and integral_j is not None:
        apart = abs(counter_j - integral_j) / (max(abs(counter_j), abs(integral_j)) or 1.0)
        numbers = f"counter {counter_j:.4g} J, power x time {integral_j:.4g} J, {100 * apart:.2g} % apart"
        problem = measured.reason if measured.doubt else "they disagree" if apart > AGREE else None
        verdicts.judge(check, problem, numbers, expected)
    elif measured.doubt:
        verdicts.judge(check, measured.reason, "", expected)
    else:
        no_counter = "there is no energy counter, as on GPUs before Volta and on superchips"
        verdicts.leave_unchecked(check, measured.reason or no_counter, expected)


def _judge_limit(verdicts: Verdicts, gpu: Gpu) -> None:
    """Judge whether the mean power at full load is within the GPU's limit."""
    _, power_w = gpu.select("power_w", *gpu.windows["full"])
    if gpu.limit_w is None or not len(power_w):
        verdicts.leave_unchecked("power at full load", "the power or its limit cannot be read")
    else:
        judge_power(verdicts, "power at full load", float(power_w.mean()), gpu.limit_w)


def judge_power(verdicts: Verdicts, check: str, power_w: float, limit_w: float) -> None:
    """Whether a mean power is possible, by the power limit."""
    most_w = ABOVE_LIMIT * limit_w
    problem = None if 0 < power_w <= most_w else "it is not above 0 and within the limit"
    verdicts.judge(check, problem, f"{power_w:.4g} W", f"at most {most_w:.4g} W, {ABOVE_LIMIT:g} x its limit")


def _judge_rise(verdicts: Verdicts, gpu: Gpu, column: str, unit: str) -> None:
    """Judge whether a reading rises from idle to full load."""
    check, expected = f"{COLUMNS[column]} follows the load", f"above {RISE:g} x idle"
    (_, idle), (_, full) = (gpu.select(column, *gpu.windows[load]) for load in ("idle", "full"))
    if not len(idle) or not len(full):
        verdicts.leave_unchecked(check, f"no reading of the {COLUMNS[column]}", expected)
        return
    low, high = float(np.median(idle)), float(np.median(full))
    problem = None if high > RISE * low else "it did not rise"
    verdicts.judge(check, problem, f"{low:.4g} {unit} idle, {high:.4g} {unit} at full load", expected)


def _judge_updates(verdicts: Verdicts, gpu: Gpu, column: str) -> None:
    """The median time between two changes at full load; a power that is steady may change seldom."""
    check = f"update period of the {COLUMNS[column]}"
    expected = f"at most {LONGEST_UPDATE_S:g} s; it is read every {1 / RATE_HZ:g} s"
    seconds, values = gpu.select(column, *gpu.windows["full"])
    changes = seconds[1:][np.diff(values) != 0]
    if len(changes) >= LEAST_CHANGES:
        period_s = float(np.median(np.diff(changes)))
        problem = None if period_s <= LONGEST_UPDATE_S else "slower than this project assumes"
        verdicts.judge(check, problem, f"{period_s:.3g} s", expected)
    elif column == "energy_j" and len(values):
        verdicts.judge(check, f"it changed {len(changes)} times at full load", "", expected)
    else:
        why = f"it changed {len(changes)} times only" if len(values) else f"no reading of the {COLUMNS[column]}"
        verdicts.leave_unchecked(check, why, expected)


def _judge_window(verdicts: Verdicts, gpu: Gpu, column: str) -> None:
    """Over how long power is a mean: after a step it rises evenly for so long, from 10 to 90 % in 0.8 of it."""
    check, most_s = f"averaging window of the {COLUMNS[column]}", WINDOW_SLACK * find_lag_s("nvml")
    expected = f"at most {most_s:g} s"
    step_s, end_s = gpu.windows["step"]
    _, before = gpu.select(column, step_s - BEFORE_S, step_s)
    seconds, values = gpu.select(column, step_s, end_s)
    last = values[seconds > end_s - LAST_S]
    if not len(before) or not len(last):
        verdicts.leave_unchecked(check, f"no reading of the {COLUMNS[column]}", expected)
        return
    low, high = float(np.median(before)), float(np.median(last))
    if not high > RISE * low:
        verdicts.judge(check, f"it stayed at {low:.4g} to {high:.4g} W when the load began", "", expected)
        return
    tenth_s, ninth_s = (float(seconds[values >= low + part * (high - low)][0]) - step_s for part in (0.1, 0.9))
    window_s = (ninth_s - tenth_s) / 0.8
    problem = None if max(window_s, tenth_s) <= most_s else f"power is taken for a mean over {find_lag_s('nvml'):g} s"
    verdicts.judge(check, problem, f"{window_s:.3g} s, after {tenth_s:.3g} s", expected)
