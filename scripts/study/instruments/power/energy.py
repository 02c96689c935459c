"""Energy in time windows from telemetry: the difference of the counter, if there is one, and the trapezoidal rule.

The two have separate columns and are never mixed. A value that the sensor cannot give, or that is doubtful
(`study.instruments.power.doubts`), is None with a reason; nothing is estimated.
"""

from dataclasses import dataclass

import numpy as np

from study.core.wording import counted
from study.instruments.power.doubts import Doubt, doubt
from study.instruments.power.series import Series, Values

UPDATES = 3  # fewer updates in a window are too few for its energy
GAP_TICKS = 3  # a longer distance between two readings is a gap
MOST_GAP = 0.1  # of a window: with a longer gap, the integral of power is none


@dataclass(frozen=True)
class Energy:
    """Energy (J) of one device in one window.

    counter_j, trapezoid_j: None if they cannot be computed; ``reason`` says why. one_hz_j: as in the paper, the mean of
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


def mean_utilisation(devices: list[Series], spans: dict[str, tuple[float, float]]) -> float | None:
    """Mean utilisation (%) of GPUs over their readings; None without a reading, or without one of some GPU.

    spans: {host: (begin, end)}, monotonic seconds. NVML's utilisation is the share of time in which a kernel ran,
    whatever part of the GPU it used.
    """
    means = []
    for device in devices:
        begin, end = spans.get(device.host, (np.inf, -np.inf))
        inside = (device.seconds >= begin) & (device.seconds <= end)
        readings = np.array([]) if device.utilization_pct is None else device.utilization_pct[inside]
        if np.isnan(readings).all():  # also of none
            return None
        means.append(float(np.nanmean(readings)))
    return sum(means) / len(means) if means else None


def between(series: Series, begin: float, end: float, rate_hz: float) -> Energy:
    """The `Energy` of a device from ``begin`` to ``end``, monotonic seconds of its host. rate_hz: ticks a second.

    Values at the window's edges are interpolated between the ticks around them.
    """
    tick = 1 / rate_hz
    readings = [series.readings(values)[0] for values in (series.energy_j, series.power_w)]
    gaps = [float(_gap_lengths(seconds, begin, end, tick).sum()) for seconds in readings]
    covered = [_covers(seconds, begin, end, tick) for seconds in readings]
    gap = gaps[0] if covered[0] else min(gaps)
    if not any(covered):
        return Energy(None, None, None, 0, gap, "the sampler does not cover it")
    counter = series.counted_j(begin, end) if covered[0] else None
    longest = _gap_lengths(readings[1], begin, end, tick).max(initial=0)
    is_read = covered[1] and longest <= MOST_GAP * (end - begin)  # an integral over a long gap is a guess
    trapezoid = series.integral_j(begin, end) if is_read else None
    updates = _updates(series, begin, end)
    if doubted := doubt(series, (begin, end), counter, trapezoid, updates):
        return Energy(None, None, None, updates, gap, doubted.why, doubted)
    if updates < UPDATES:
        few = counted(updates, "update")
        return Energy(None, None, None, updates, gap, f"unresolved: {few} of the sensor in {end - begin:.3g} s")
    if counter is None and trapezoid is None:
        return Energy(None, None, None, updates, gap, f"no reading of power for {longest:.3g} of {end - begin:.3g} s")
    one_hz = None if trapezoid is None else _one_hz(series, begin, end)
    return Energy(counter, trapezoid, one_hz, updates, gap, None)


def _covers(seconds: Values, begin: float, end: float, tick: float) -> bool:
    """Whether the readings at these times begin and end with the window or outside it."""
    return len(seconds) >= 2 and bool(seconds[0] <= begin + tick and seconds[-1] >= end - tick)


def _one_hz(series: Series, begin: float, end: float) -> float:
    """Energy by the power read once a second (icpp2019, section 3): each second has the latest reading before it."""
    seconds, power = series.readings(series.power_w)
    latest = np.searchsorted(seconds, np.arange(begin, end, 1.0), side="right") - 1
    return float(power[np.maximum(latest, 0)].mean() * (end - begin))


def _updates(series: Series, begin: float, end: float) -> int:
    """Number of new values from the sensor: by its own count, else by changes of its counter, else of its power."""
    inside = (series.seconds >= begin) & (series.seconds <= end)
    for values in (series.freshness, series.energy_j, series.power_w):
        known = values[inside]
        known = known[~np.isnan(known)]
        if len(known):
            return int((np.diff(known) != 0).sum()) if values is not series.power_w else len(known)
    return 0


def _gap_lengths(seconds: Values, begin: float, end: float, tick: float) -> Values:
    """Seconds of each gap in the window: a distance between readings of more than `GAP_TICKS` ticks."""
    edges = np.concatenate([[begin], seconds[(seconds > begin) & (seconds < end)], [end]])
    steps = np.diff(edges)
    return steps[steps > GAP_TICKS * tick]
