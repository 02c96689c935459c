"""Whether a device's energy in a window can be true, by the most it can draw, and by its counter against its power."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study.core.files import number_or_none
from study.instruments.power.kinds import OF_COUNTERS_S, lag_s, most_w, seldom_s, unit, wraps_s
from study.instruments.power.series import Series, Values

MOST_APART = 0.1  # counter and integral of power, of the larger one
JUDGED_UPDATES = 20  # with fewer, the updates at the window's edges alone can be a tenth of its energy
SIGMAS = 4.0
STILL_S = 2.0  # a counter that stands still for a shorter time than this is not taken for a frozen one
STILL_READINGS = 3  # nor one that is known to update faster than it is read, in so many distances between readings


@dataclass(frozen=True)
class Doubt:
    """Why an energy is not to be used, and the figures (J) by which that can be judged; None for one that is unknown.

    disagreement_pct: of the counter and the integral of power, of the larger one.
    """

    why: str
    counter_j: float | None
    trapezoid_j: float | None
    disagreement_pct: float | None


def doubt(
    series: Series, window: tuple[float, float], counter_j: float | None, trapezoid_j: float | None, updates: int
) -> Doubt | None:
    """The `Doubt` about a device's energy in a window, or None.

    window: begin and end, monotonic seconds. counter_j, trapezoid_j: its energy. updates: the sensor's new values in
    it. A window in which the sensor makes fewer than `JUDGED_UPDATES`, or in which sampling may explain that the two
    disagree, is not judged by them.
    """
    apart = _apart(counter_j, trapezoid_j)
    why = _impossible(series, window) or _disagreement(series, window, counter_j, trapezoid_j, updates)
    if not why and counter_j is not None:
        why = _standstill(series, window)
    if not why:
        return None
    percent = None if apart is None else 100 * apart
    return Doubt(f"doubtful: {why}", *(number_or_none(value) for value in (counter_j, trapezoid_j, percent)))


def _disagreement(
    series: Series, window: tuple[float, float], counter_j: float | None, trapezoid_j: float | None, updates: int
) -> str | None:
    """A window that cannot be judged by itself is judged by all readings of the device."""
    told = f"energy counter and power of a {series.kind} disagree by more than {MOST_APART:.0%}"
    if counter_j is None and trapezoid_j is None:
        return None
    has_gaps = not _near(series, *_within(*series.readings(series.power_w), window)).all()
    if counter_j is not None and trapezoid_j is not None and _judged(series, window, updates) and not has_gaps:
        if not _differ(counter_j, trapezoid_j):
            return None
        if _differ(counter_j, trapezoid_j, explained_j(series, window)):
            return told
    return f"{told} over the run" if _differs_in_the_run(series) else None


def _differs_in_the_run(series: Series) -> bool:
    """Whether counter and power disagree over all readings of both, without gaps; not if there are too few to tell."""
    both = ~np.isnan(series.power_w) & ~np.isnan(series.energy_j)
    seconds, power, counts = series.seconds[both], series.power_w[both], series.energy_j[both]
    steps, near = np.diff(seconds), _near(series, seconds, power)
    if not near.any() or steps[near].sum() < JUDGED_UPDATES * _usual_distance(series):
        return False
    integral = float((steps * (power[:-1] + power[1:]) / 2)[near].sum())
    return _differ(float(np.diff(counts)[near].sum()), integral, explained_j(series, (seconds[0], seconds[-1])))


def _near(series: Series, seconds: Values, power: Values) -> NDArray[np.bool_]:
    """Which distances between readings are no gap, with a possible power at both ends."""
    possible = _possible(series, power)
    return (np.diff(seconds) <= series.longest_step_s(series.power_w)) & possible[:-1] & possible[1:]


def _possible(series: Series, power: Values) -> NDArray[np.bool_]:
    return (power >= 0) & (power <= most_w(series.sensor, series.kind))


def _differ(counter_j: float, trapezoid_j: float, explained: float = 0.0) -> bool:
    return abs(counter_j - trapezoid_j) > max(MOST_APART * max(abs(counter_j), abs(trapezoid_j)), explained)


def explained_j(series: Series, window: tuple[float, float]) -> float:
    """By how much (J) the integral of power over a window may differ from the counter although both are right.

    Between two readings, power may have changed at any moment: four standard deviations of the sum of these errors.
    Then the lag of the sensor's power at the window's edges, and its coarse units. Gaps have no part in it.
    """
    seconds, power = series.readings(series.power_w)
    inside_s, inside_w = _within(seconds, power, window)
    near = _near(series, inside_s, inside_w)
    errors = (np.diff(inside_s) * np.diff(inside_w))[near]
    sampling = SIGMAS * math.sqrt(float((errors**2).sum()) / 2)
    late = lag_s(series.sensor)
    to_edges = np.minimum(abs(seconds - window[0]), abs(seconds - window[1]))
    at_edges = power[(to_edges <= late) & _possible(series, power)]
    lag = late * float(np.ptp(at_edges)) if len(at_edges) else 0.0
    return sampling + lag + unit(series.sensor) * (float(np.diff(inside_s)[near].sum()) + 2)


def _standstill(series: Series, window: tuple[float, float]) -> str | None:
    """A device always needs some power: a counter that works moves, unless its power says that none is needed."""
    seconds, counts = _within(*series.readings(series.energy_j), window)
    moves = np.flatnonzero(np.diff(counts)) + 1  # a value is held from its first reading to its last one
    firsts, lasts = np.concatenate([[0], moves]), np.concatenate([moves, [len(counts)]]) - 1
    still = np.argmax(seconds[lasts] - seconds[firsts])
    begin, end = float(seconds[firsts[still]]), float(seconds[lasts[still]])
    most = STILL_READINGS if series.sensor in OF_COUNTERS_S else JUDGED_UPDATES
    if end - begin <= max(STILL_S, most * _usual_distance(series)):
        return None
    needed = series.integral_j(begin, end)
    if needed is not None and needed <= 1 + unit(series.sensor) * (end - begin + 2):
        return None
    return f"the energy counter of a {series.kind} stood still for {end - begin:.3g} s"


def _apart(counter_j: float | None, trapezoid_j: float | None) -> float | None:
    if counter_j is None or trapezoid_j is None:
        return None
    larger = max(abs(counter_j), abs(trapezoid_j))
    return abs(counter_j - trapezoid_j) / larger if larger else 0.0


def _impossible(series: Series, window: tuple[float, float]) -> str | None:
    """What no device of this kind can do: of the readings in the window, and of those that its edges are between."""
    most = most_w(series.sensor, series.kind)
    _, power = _within(*series.readings(series.power_w), window)
    seconds, counts = _within(*series.readings(series.energy_j), window)
    if (power < 0).any():
        return f"a {series.kind} read a negative power"
    if (power > most).any():
        return f"a {series.kind} read more than {most:,.0f} W"
    if (np.diff(counts) < 0).any():
        return f"the energy counter of a {series.kind} went back"
    if np.isinf(counts).any() or _fastest_rise(seconds, counts, most) > most * seldom_s(series.sensor):
        return f"the energy counter of a {series.kind} rose by more than {most:,.0f} W"
    if (longest := np.diff(seconds).max(initial=0)) > wraps_s(series.sensor, series.kind):
        return f"the energy counter of a {series.kind} was not read for {longest:.3g} s and may have wrapped"
    return None


def _fastest_rise(seconds: Values, counts: Values, most: float) -> float:
    """By how many joules the counter rose more, between any two readings, than a device of ``most`` W can."""
    above = counts - most * seconds
    return float((above - np.minimum.accumulate(above)).max(initial=0))


def _within(seconds: Values, values: Values, window: tuple[float, float]) -> tuple[Values, Values]:
    """Times and values of the known readings in a window, with the one before and the one after."""
    known = ~np.isnan(values)
    seconds, values = seconds[known], values[known]
    first = max(np.searchsorted(seconds, window[0], side="right") - 1, 0)
    last = np.searchsorted(seconds, window[1], side="left") + 1
    return seconds[first:last], values[first:last]


def _judged(series: Series, window: tuple[float, float], updates: int) -> bool:
    """Whether the sensor made enough updates, or would have if it had gone on at its usual rate: it may have frozen."""
    usual = _usual_distance(series)
    return max(updates, (window[1] - window[0]) / usual) >= JUDGED_UPDATES


def _usual_distance(series: Series) -> float:
    """Median seconds between two updates, by the sensor's count, else by its counter; infinite without any."""
    for values in (series.freshness, series.energy_j):
        known = ~np.isnan(values)
        if known.any():
            distances = np.diff(series.seconds[known][1:][np.diff(values[known]) != 0])
            distances = distances[distances > 0]
            return float(np.median(distances)) if len(distances) else np.inf
    return np.inf
