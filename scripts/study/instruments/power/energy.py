"""Energy of windows of time from telemetry: the counter's difference where there is a counter, and the trapezoid.

The two are never mixed: they are columns of their own. What a sensor cannot tell is None with a reason; nothing is
guessed.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

UPDATES = 3  # a window in which a sensor had fewer says little of it
GAP_TICKS = 3  # ticks that are missing in a row before it is called a gap


@dataclass(frozen=True)
class Series:
    """What one device told over time. seconds: monotonic, ascending; the others NaN where a tick had no value."""

    host: str
    sensor: str
    kind: str
    name: str
    seconds: np.ndarray
    power_w: np.ndarray
    energy_j: np.ndarray
    freshness: np.ndarray


@dataclass(frozen=True)
class Energy:
    """Energy (J) of one device in one window.

    counter_j, trapezoid_j: None where they cannot be told, and ``reason`` says why. one_hz_j: as the paper had it, the
    mean of the power read once a second times the window's length. updates: how often the sensor brought something new
    in the window. gap_s: time without ticks in it.
    """

    counter_j: float | None
    trapezoid_j: float | None
    one_hz_j: float | None
    updates: int
    gap_s: float
    reason: str | None

    @property
    def best_j(self):
        """The counter's energy where there is a counter, else the trapezoid's."""
        return self.trapezoid_j if self.counter_j is None else self.counter_j


def read(path):
    """The `Series` in a ``telemetry.csv``; none where it is empty."""
    try:
        frame = pd.read_csv(path, dtype={"host": str, "device": str})
    except pd.errors.EmptyDataError:
        return []
    keys = ["host", "sensor", "kind", "device"]
    found = []
    for key, rows in frame.groupby(keys, sort=False):
        rows = rows.sort_values("monotonic_ns")
        columns = (rows[name].to_numpy(dtype=float) for name in ("power_w", "energy_j", "freshness"))
        found.append(Series(*key, rows["monotonic_ns"].to_numpy() / 1e9, *columns))
    return found


def between(series, begin, end, rate_hz):
    """The `Energy` of a device from ``begin`` to ``end``, monotonic seconds of its host. rate_hz: ticks a second.

    Values at the window's edges are interpolated between the ticks around them.
    """
    seconds = series.seconds
    tick = 1 / rate_hz
    if len(seconds) < 2 or seconds[0] > begin + tick or seconds[-1] < end - tick:
        return Energy(None, None, None, 0, 0.0, "the sampler does not cover it")
    updates = _updates(series, begin, end)
    gap = _gaps(seconds, begin, end, tick)
    if updates < UPDATES:
        return Energy(
            None, None, None, updates, gap, f"unresolved: {updates} updates of the sensor in {end - begin:.3g} s"
        )
    return Energy(
        _difference(seconds, series.energy_j, begin, end),
        _trapezoid(seconds, series.power_w, begin, end),
        _one_hz(seconds, series.power_w, begin, end),
        updates,
        gap,
        None,
    )


def _difference(seconds, energy, begin, end):
    known = ~np.isnan(energy)
    if known.sum() < 2:
        return None
    first, last = np.interp([begin, end], seconds[known], energy[known])
    return float(last - first)


def _trapezoid(seconds, power, begin, end):
    known = ~np.isnan(power)
    if known.sum() < 2:
        return None
    seconds, power = seconds[known], power[known]
    inside = (seconds > begin) & (seconds < end)
    edges = np.interp([begin, end], seconds, power)
    return float(
        np.trapezoid(
            np.concatenate([edges[:1], power[inside], edges[1:]]), np.concatenate([[begin], seconds[inside], [end]])
        )
    )


def _one_hz(seconds, power, begin, end):
    """What reading once a second would have told (icpp2019, section 3): each second has the reading before it."""
    known = ~np.isnan(power)
    seconds, power = seconds[known], power[known]
    if len(seconds) == 0:
        return None
    latest = np.searchsorted(seconds, np.arange(begin, end, 1.0), side="right") - 1
    return float(power[np.maximum(latest, 0)].mean() * (end - begin))


def _updates(series, begin, end):
    """How often the sensor brought something new: by its own count, else by its counter, else by its power."""
    inside = (series.seconds >= begin) & (series.seconds <= end)
    for values in (series.freshness, series.energy_j, series.power_w):
        known = values[inside]
        known = known[~np.isnan(known)]
        if len(known):
            return int((np.diff(known) != 0).sum()) if values is not series.power_w else len(known)
    return 0


def _gaps(seconds, begin, end, tick):
    """Seconds of the window in which ticks are missing for longer than `GAP_TICKS`."""
    edges = np.concatenate([[begin], seconds[(seconds > begin) & (seconds < end)], [end]])
    steps = np.diff(edges)
    return float(steps[steps > GAP_TICKS * tick].sum())
