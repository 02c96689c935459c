"""Whether a device's energy in a window can be true, by the most it can draw, and by its counter against its power."""

from dataclasses import dataclass

import numpy as np

from study.core.files import number_or_none
from study.instruments.power.kinds import most_w, seldom_s, wraps_s
from study.instruments.power.series import Series, Values

MOST_APART = 0.1  # counter and integral of power, of the larger one
JUDGED_UPDATES = 20  # with fewer, the updates at the window's edges alone can be a tenth of its energy
STILL_S = 2.0  # a counter that stands still for a shorter time than this is not taken for a frozen one


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
    it. A window in which the sensor makes fewer than `JUDGED_UPDATES` is not judged by counter against power.
    """
    apart = _apart(counter_j, trapezoid_j)
    why = _impossible(series, window)
    if not why and apart is not None:
        why = _disagreement(series, window, apart, updates)
    if not why and counter_j is not None and trapezoid_j is None:
        why = _standstill(series, window)
    if not why:
        return None
    percent = None if apart is None else 100 * apart
    return Doubt(f"doubtful: {why}", *(number_or_none(value) for value in (counter_j, trapezoid_j, percent)))


def _disagreement(series: Series, window: tuple[float, float], apart: float, updates: int) -> str | None:
    """A window that is too short to be judged is judged by all readings of the device."""
    where = ""
    if not _judged(series, window, updates):
        window = float(series.seconds[0]), float(series.seconds[-1])
        whole = _apart(series.counted_j(*window), series.integral_j(*window))
        if whole is None or not _judged(series, window, 0):
            return None
        apart, where = whole, " over the run"
    if apart <= MOST_APART:
        return None
    return f"energy counter and power of a {series.kind} disagree by more than {MOST_APART:.0%}{where}"


def _standstill(series: Series, window: tuple[float, float]) -> str | None:
    """A counter without power to compare it with: a device always needs some, so that a counter that works moves."""
    seconds, counts = _within(*series.readings(series.energy_j), window)
    moves = np.flatnonzero(np.diff(counts)) + 1  # a value is held from its first reading to its last one
    firsts, lasts = np.concatenate([[0], moves]), np.concatenate([moves, [len(counts)]]) - 1
    longest = float((seconds[lasts] - seconds[firsts]).max())
    if longest <= max(STILL_S, JUDGED_UPDATES * _usual_distance(series)):
        return None
    return f"the energy counter of a {series.kind} stood still for {longest:.3g} s"


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
