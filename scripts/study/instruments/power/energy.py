"""Energy in time windows from telemetry: the difference of the counter, if there is one, and the trapezoidal rule.

The two have separate columns and are never mixed. A value that the sensor cannot give, or that is doubtful
(`study.instruments.power.plausibility`), is None with a reason; nothing is estimated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from study.core.wording import format_count
from study.instruments.power.plausibility import Doubt, find_doubt, find_lag_s
from study.instruments.power.telemetry import GAP_TICKS, Series, Values

UPDATES = 3  # fewer updates in a window are too few for its energy
SLOWEST = 10  # periods: power that is read so seldom may have been read while the ranks waited, and not while they ran
MOST_GAP = 0.1  # of a window: a longer gap in it makes the integral of power a guess, one around an edge the counter's


@dataclass(frozen=True)
class Energy:
    """Energy (J) of one device in one window.

    counter_j, trapezoid_j: None if they cannot be computed; ``reason`` says why, also if only the latter is missing of
    a device that has power. one_hz_j: as in the paper, the mean of
    the power read once a second, times the window's length. updates: number of new values from the sensor in the
    window. gap_s: time without readings in the window. doubt: why the energy is doubtful, with its figures, or None.
    """

    counter_j: float | None
    trapezoid_j: float | None
    one_hz_j: float | None
    updates: int
    gap_s: float
    reason: str | None
    doubt: Doubt | None = None

    @property
    def best_j(self) -> float | None:
        """The counter's energy if there is a counter, else the trapezoid's."""
        return self.trapezoid_j if self.counter_j is None else self.counter_j


def compute_mean_utilisation(devices: list[Series], spans: Mapping[str, Sequence[tuple[float, float]]]) -> float | None:
    """Mean utilisation (%) of GPUs over their readings; None without a reading, or without one of some GPU.

    spans: {host: [(begin, end), ...]}, monotonic seconds. NVML's utilisation is the share of time in which a kernel
    ran, whatever part of the GPU it used.
    """
    means = []
    for device in devices:
        inside = np.zeros(len(device.seconds), bool)
        for begin, end in spans.get(device.host, ()):
            inside |= (device.seconds >= begin) & (device.seconds <= end)
        readings = np.array([]) if device.utilization_pct is None else device.utilization_pct[inside]
        if np.isnan(readings).all():  # also of none
            return None
        means.append(float(np.nanmean(readings)))
    return sum(means) / len(means) if means else None


def find_most_memory_mb(devices: list[Series]) -> float | None:
    """The most memory in use on any GPU at any reading (10^6 bytes); None without a reading of some GPU."""
    read = [np.array([]) if each.memory_mb is None else each.memory_mb[~np.isnan(each.memory_mb)] for each in devices]
    return max(float(each.max()) for each in read) if read and all(map(len, read)) else None


def compute_energy(series: Series, begin: float, end: float, rate_hz: float) -> Energy:
    """The `Energy` of a device from ``begin`` to ``end``, monotonic seconds of its host. rate_hz: ticks a second.

    Values at the window's edges are interpolated between the ticks around them.
    """
    window, tick = (begin, end), 1 / rate_hz
    counted_on = _compute_coverage(series, series.energy_j, window, tick, _compute_edge_steps)
    power_read = _compute_coverage(series, series.power_w, window, tick, _compute_steps)
    gap = counted_on.gap_s if counted_on.is_whole else min(counted_on.gap_s, power_read.gap_s)
    if len(series.seconds) and not (counted_on.has_readings or power_read.has_readings):
        reason = f"{series.sensor}: {series.name} reports neither power nor energy"
        return Energy(None, None, None, 0, gap, reason)
    if not (counted_on.is_whole or power_read.is_whole):
        return Energy(None, None, None, 0, gap, "the sampler does not cover it")
    counter = series.compute_counter_j(begin, end) if counted_on.is_known else None
    trapezoid, unread = _compute_integral(series, window, tick, power_read)
    if trapezoid is not None and not counted_on.has_readings and (late := _explain_lag(series, window, trapezoid)):
        trapezoid, unread = None, late
    updates = _count_updates(series, begin, end)
    if doubted := find_doubt(series, window, counter, trapezoid, updates):
        return Energy(None, None, None, updates, gap, doubted.why, doubted)
    if updates < UPDATES:
        few = format_count(updates, "update")
        return Energy(None, None, None, updates, gap, f"unresolved: {few} of the sensor in {end - begin:.3g} s")
    one_hz = None if trapezoid is None else _compute_one_hz_j(series, begin, end)
    if counter is None and trapezoid is None and not power_read.has_readings:
        unread = f"no reading of the counter for {counted_on.step_s:.3g} s around an edge of {end - begin:.3g} s"
    return Energy(counter, trapezoid, one_hz, updates, gap, unread)


@dataclass(frozen=True)
class _Coverage:
    """How a column of a device was read in a window.

    is_whole: from its begin to its end. gap_s: time in gaps. step_s: the time without a reading that matters for the
    energy: of a counter the longest one around an edge, of power all gaps together. is_known: whether it is short
    enough.
    """

    has_readings: bool
    is_whole: bool
    gap_s: float
    step_s: float
    is_known: bool


def _compute_coverage(
    series: Series,
    values: Values,
    window: tuple[float, float],
    tick: float,
    steps: Callable[[Values, float, float], Values],
) -> _Coverage:
    """The `_Coverage` of a column. steps: from (times of readings, begin, end) to the times without one that matter."""
    seconds, (begin, end) = series.select_readings(values)[0], window
    is_whole = len(seconds) >= 2 and bool(seconds[0] <= begin + tick and seconds[-1] >= end - tick)
    every = _compute_steps(seconds, begin, end)
    longest = float(steps(seconds, begin, end).max(initial=0))
    most = max(series.compute_longest_step_s(values, tick), MOST_GAP * (end - begin))
    gap = float(every[every > GAP_TICKS * tick].sum())
    if steps is _compute_steps:  # the integral of power: many short gaps are as bad as a long one
        longest = max(longest, _sum_stalled_s(every, tick))
    return _Coverage(len(seconds) > 0, is_whole, gap, longest, is_whole and longest <= most)


def _compute_integral(
    series: Series, window: tuple[float, float], tick: float, read: _Coverage
) -> tuple[float | None, str | None]:
    """(integral of power over a window, None), or (None, the reason), which is None for a device without power."""
    length_s = window[1] - window[0]
    if not read.has_readings:
        return None, None
    if not read.is_known:
        return None, f"no reading of power for {read.step_s:.3g} of {length_s:.3g} s"
    usual = series.compute_longest_step_s(series.power_w) / GAP_TICKS
    if usual > SLOWEST * tick:
        return None, f"power was read every {usual:.2g} s instead of every {tick:.2g} s"
    integral_j, (unread_s, unsure_j) = series.compute_integral_j(*window), _compute_uncertainty(series, window, tick)
    if integral_j is not None and unsure_j > MOST_GAP * abs(integral_j):
        share = f"{100 * unsure_j / abs(integral_j):.0f} %" if integral_j else "all"
        reason = f"no reading of power for {unread_s:.3g} of {length_s:.3g} s"
        return None, f"{reason}, in which it changed: {share} of the energy is uncertain"
    return integral_j, None


def _explain_lag(series: Series, window: tuple[float, float], integral_j: float) -> str | None:
    """Why the integral of a power that is a mean over the last moments is not that of the window, or None.

    It has half the energy of so long a time before the window's begin, and lacks half of that before its end.
    """
    late = find_lag_s(series.sensor)
    seconds, power = series.select_readings(series.power_w)
    if series.average_power_w is not None:
        is_known = ~np.isnan(series.power_w) & ~np.isnan(series.average_power_w)
        if is_known.any() and (series.power_w != series.average_power_w)[is_known].mean() > 1 / 2:
            late = 0.0  # the sensor tells the mean too, and this is another one
    first, last = np.interp(window, seconds, power)
    wrong_j = late / 2 * abs(float(last - first))
    if wrong_j <= MOST_GAP * abs(integral_j):
        return None
    share = f"{100 * wrong_j / abs(integral_j):.0f} %" if integral_j else "all"
    text_s = f"{window[1] - window[0]:.3g} s"
    return f"power is a mean over {late:g} s, and changed: {share} of the energy in {text_s} is uncertain"


def _compute_uncertainty(series: Series, window: tuple[float, float], tick: float) -> tuple[float, float]:
    """(time in gaps, s, by how much the integral may be wrong in them, J): power may be any that was read."""
    seconds, power = series.select_readings(series.power_w)
    inside = (seconds > window[0]) & (seconds < window[1])
    values = np.interp([window[0], *seconds[inside], window[1]], seconds, power)
    steps, means = np.diff([window[0], *seconds[inside], window[1]]), (values[:-1] + values[1:]) / 2
    gaps = steps > GAP_TICKS * _estimate_usual_step_s(steps, tick)
    around = (np.searchsorted(seconds, window[0], "right") - 1, np.searchsorted(seconds, window[1], "left"))
    read = np.concatenate([values, power[np.clip(around, 0, len(power) - 1)]])
    with np.errstate(invalid="ignore"):  # of infinite readings, which are doubtful
        apart = np.maximum(read.max() - means, means - read.min())
    return float(steps[gaps].sum()), float((steps * apart)[gaps].sum())


def _estimate_usual_step_s(steps: Values, tick: float) -> float:
    """The usual steps are the short ones, of a sampler that runs."""
    return max(tick, float(np.quantile(steps, 0.25))) if len(steps) else tick


def _sum_stalled_s(steps: Values, tick: float) -> float:
    """Time (s) in steps that are much longer than usual."""
    return float(steps[steps > GAP_TICKS * _estimate_usual_step_s(steps, tick)].sum())


def _compute_one_hz_j(series: Series, begin: float, end: float) -> float:
    """Energy by the power read once a second (icpp2019, section 3): each second has the latest reading before it."""
    seconds, power = series.select_readings(series.power_w)
    latest = np.searchsorted(seconds, np.arange(begin, end, 1.0), side="right") - 1
    return float(power[np.maximum(latest, 0)].mean() * (end - begin))


def _count_updates(series: Series, begin: float, end: float) -> int:
    """Number of new values from the sensor: by its own count, else by changes of its counter, else of its power."""
    inside = (series.seconds >= begin) & (series.seconds <= end)
    for values in (series.freshness, series.energy_j, series.power_w):
        readings = values[inside]
        readings = readings[~np.isnan(readings)]
        if len(readings):
            return int((np.diff(readings) != 0).sum()) if values is not series.power_w else len(readings)
    return 0


def _compute_steps(seconds: Values, begin: float, end: float) -> Values:
    """Seconds between readings in the window, and between its edges and the readings next to them."""
    return np.diff(np.concatenate([[begin], seconds[(seconds > begin) & (seconds < end)], [end]]))


def _compute_edge_steps(seconds: Values, begin: float, end: float) -> Values:
    """Seconds between the two readings around each edge of the window; none for an edge at a reading."""
    edges = np.array([begin, end])
    after = np.searchsorted(seconds, edges, side="left")
    inside = (after > 0) & (after < len(seconds))
    inside[inside] = seconds[after[inside]] > edges[inside]
    return seconds[after[inside]] - seconds[after[inside] - 1]
