"""Whether a device's energy in a window can be true: by the most that its kind can draw, and its counter by its power.

Apart from the sensors: the sampler does not need it, so a limit that changes is no new version of the training code.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study.core.files import to_finite_or_none
from study.instruments.power.telemetry import Series, Values

# {kind: W}. What a device's power covers; node includes the others. Each limit is about three times the most that was
# on sale in 2025, so that no short peak reaches it; a broken reading is mostly far above.
KINDS = {
    "gpu": 5_000.0,  # AMD MI355X 1,400 W; also the three GPUs of 300 W that POWER9's sensor of a socket covers
    "cpu": 5_000.0,  # Xeon 6980P 500 W; also the sockets of a node, which Cray's counter covers
    "memory": 2_000.0,  # 32 DIMMs of 20 W
    "node": 50_000.0,  # DGX B200 14,300 W (docs.nvidia.com/dgx/dgxb200-user-guide)
}
# {(sensor, kind): W}: where one device stands for more than elsewhere.
KINDS_OF_SENSORS = {
    # One counter for all accelerators of a node, such as the four GPUs of a GB200 NVL4 board of 5,400 W in all.
    ("cray", "gpu"): 15_000.0,
}
# {sensor: s}: the longest time between two updates of its counter, where that is known; elsewhere `LONGEST_UPDATE_S`.
# Between two readings a counter never rises by the energy of a longer time than theirs and this.
LONGEST_UPDATE_S = 1.0
LONGEST_UPDATES_S = {"rapl": 0.1}  # each 1 ms (Linux kernel, powercap); the rest is for late readings
# {sensor: J}: the least that a counter of this sensor can count before it wraps to 0: 2^32 units of 15.3 uJ on AMD.
WRAPS_J = {"rapl": 65_500.0}
# {sensor: s}: over how long its power may be a mean: the last second on some GPUs and drivers (NVML's reference,
# nvmlDeviceGetPowerUsage), so that its integral lags behind the counter; likewise AMD's averaged power.
LAG_S = {"nvml": 1.0, "amdsmi": 1.0}
# {sensor: W or J}: its units, where they are coarse: Cray's counters have whole watts and whole joules.
UNITS = {"cray": 1.0}

MOST_APART = 0.1  # counter and integral of power, of the larger one
JUDGED_UPDATES = 20  # with fewer, the updates at the window's edges alone can be a tenth of its energy
SIGMAS = 4.0
STILL_S = 2.0  # a counter that stands still for a shorter time than this is not taken for a frozen one
STILL_READINGS = 3  # nor one that is known to update faster than it is read, in so many distances between readings


def find_most_w(sensor: str, kind: str) -> float:
    """The most power (W) that a device of this kind can draw, by what this sensor's devices cover."""
    return KINDS_OF_SENSORS.get((sensor, kind), KINDS.get(kind, float("inf")))


def find_longest_update_s(sensor: str) -> float:
    """The longest time (s) between two updates of a sensor's counter."""
    return LONGEST_UPDATES_S.get(sensor, LONGEST_UPDATE_S)


def compute_wrap_s(sensor: str, kind: str) -> float:
    """The time (s) in which a counter may wrap unseen, at its device's most power; infinite if it does not wrap."""
    return WRAPS_J.get(sensor, float("inf")) / find_most_w(sensor, kind)


def find_lag_s(sensor: str) -> float:
    """Seconds by which a sensor's power may lag behind its counter."""
    return LAG_S.get(sensor, 0.0)


def find_unit(sensor: str) -> float:
    """The unit (W, J) to which a sensor's readings are cut off; 0 if it is fine."""
    return UNITS.get(sensor, 0.0)


@dataclass(frozen=True)
class Doubt:
    """Why an energy is not to be used, and the figures (J) by which that can be judged; None for one that is unknown.

    disagreement_pct: of the counter and the integral of power, of the larger one.
    """

    why: str
    counter_j: float | None
    trapezoid_j: float | None
    disagreement_pct: float | None


def find_doubt(
    series: Series, window: tuple[float, float], counter_j: float | None, trapezoid_j: float | None, updates: int
) -> Doubt | None:
    """The `Doubt` about a device's energy in a window, or None.

    window: begin and end, monotonic seconds. counter_j, trapezoid_j: its energy. updates: the sensor's new values in
    it. A window in which the sensor makes fewer than `JUDGED_UPDATES`, or in which sampling may explain that the two
    disagree, is not judged by them.
    """
    apart = _compute_difference(counter_j, trapezoid_j)
    why = _find_impossible(series, window) or _find_disagreement(series, window, counter_j, trapezoid_j, updates)
    if not why and counter_j is not None:
        why = _find_standstill(series, window)
    if not why:
        return None
    percent = None if apart is None else 100 * apart
    return Doubt(f"doubtful: {why}", *(to_finite_or_none(value) for value in (counter_j, trapezoid_j, percent)))


def _find_disagreement(
    series: Series, window: tuple[float, float], counter_j: float | None, trapezoid_j: float | None, updates: int
) -> str | None:
    """The reason why counter and power disagree, or None; a window with too few updates is judged by the whole run."""
    reason = f"energy counter and power of a {series.kind} disagree by more than {MOST_APART:.0%}"
    if counter_j is None and trapezoid_j is None:
        return None
    has_gaps = not _find_near_steps(series, *_select_readings(*series.select_readings(series.power_w), window)).all()
    if counter_j is not None and trapezoid_j is not None and _can_judge(series, window, updates) and not has_gaps:
        if not _is_different(counter_j, trapezoid_j):
            return None
        if _is_different(counter_j, trapezoid_j, compute_explained_j(series, window)):
            return reason
    return f"{reason} over the run" if _has_disagreement_in_run(series) else None


def _has_disagreement_in_run(series: Series) -> bool:
    """Whether counter and power disagree over all readings of both, without gaps; not if there are too few to tell."""
    both = ~np.isnan(series.power_w) & ~np.isnan(series.energy_j)
    seconds, power, counts = series.seconds[both], series.power_w[both], series.energy_j[both]
    steps, near = np.diff(seconds), _find_near_steps(series, seconds, power)
    if not near.any() or steps[near].sum() < JUDGED_UPDATES * _compute_usual_distance(series):
        return False
    integral = float((steps * (power[:-1] + power[1:]) / 2)[near].sum())
    return _is_different(
        float(np.diff(counts)[near].sum()), integral, compute_explained_j(series, (seconds[0], seconds[-1]))
    )


def _find_near_steps(series: Series, seconds: Values, power: Values) -> NDArray[np.bool_]:
    """Which distances between readings are no gap, with a possible power at both ends."""
    possible = _find_possible(series, power)
    return (np.diff(seconds) <= series.compute_longest_step_s(series.power_w)) & possible[:-1] & possible[1:]


def _find_possible(series: Series, power: Values) -> NDArray[np.bool_]:
    return (power >= 0) & (power <= find_most_w(series.sensor, series.kind))


def _is_different(counter_j: float, trapezoid_j: float, explained: float = 0.0) -> bool:
    return abs(counter_j - trapezoid_j) > max(MOST_APART * max(abs(counter_j), abs(trapezoid_j)), explained)


def compute_explained_j(series: Series, window: tuple[float, float]) -> float:
    """Joules by which the integral of power over a window may differ from the counter although both are right.

    Between two readings, power may have changed at any moment: four standard deviations of the sum of these errors.
    Then the lag of the sensor's power at the window's edges, and its coarse units. Gaps have no part in it.
    """
    seconds, power = series.select_readings(series.power_w)
    inside_s, inside_w = _select_readings(seconds, power, window)
    near = _find_near_steps(series, inside_s, inside_w)
    errors = (np.diff(inside_s) * np.diff(inside_w))[near]
    sampling = SIGMAS * math.sqrt(float((errors**2).sum()) / 2)
    late = find_lag_s(series.sensor)
    to_edges = np.minimum(abs(seconds - window[0]), abs(seconds - window[1]))
    at_edges = power[(to_edges <= late) & _find_possible(series, power)]
    lag = late * float(np.ptp(at_edges)) if len(at_edges) else 0.0
    return sampling + lag + find_unit(series.sensor) * (float(np.diff(inside_s)[near].sum()) + 2)


def _find_standstill(series: Series, window: tuple[float, float]) -> str | None:
    """The reason why a counter has stopped, or None: it must move unless power says that none is needed."""
    seconds, counts = _select_readings(*series.select_readings(series.energy_j), window)
    moves = np.flatnonzero(np.diff(counts)) + 1  # a value is held from its first reading to its last one
    firsts, lasts = np.concatenate([[0], moves]), np.concatenate([moves, [len(counts)]]) - 1
    still = np.argmax(seconds[lasts] - seconds[firsts])
    begin, end = float(seconds[firsts[still]]), float(seconds[lasts[still]])
    most = STILL_READINGS if series.sensor in LONGEST_UPDATES_S else JUDGED_UPDATES
    if end - begin <= max(STILL_S, most * _compute_usual_distance(series)):
        return None
    needed = series.compute_integral_j(begin, end)
    if needed is not None and needed <= 1 + find_unit(series.sensor) * (end - begin + 2):
        return None
    return f"the energy counter of a {series.kind} stood still for {end - begin:.3g} s"


def _compute_difference(counter_j: float | None, trapezoid_j: float | None) -> float | None:
    if counter_j is None or trapezoid_j is None:
        return None
    larger = max(abs(counter_j), abs(trapezoid_j))
    return abs(counter_j - trapezoid_j) / larger if larger else 0.0


def _find_impossible(series: Series, window: tuple[float, float]) -> str | None:
    """The reason why readings in the window, or next to its edges, are impossible for this kind of device, or None."""
    most = find_most_w(series.sensor, series.kind)
    _, power = _select_readings(*series.select_readings(series.power_w), window)
    seconds, counts = _select_readings(*series.select_readings(series.energy_j), window)
    if (power < 0).any():
        return f"a {series.kind} read a negative power"
    if (power > most).any():
        return f"a {series.kind} read more than {most:,.0f} W"
    if (np.diff(counts) < 0).any():
        return f"the energy counter of a {series.kind} went back"
    if np.isinf(counts).any() or _compute_fastest_rise(seconds, counts, most) > most * find_longest_update_s(
        series.sensor
    ):
        return f"the energy counter of a {series.kind} rose by more than {most:,.0f} W"
    if (longest := np.diff(seconds).max(initial=0)) > compute_wrap_s(series.sensor, series.kind):
        return f"the energy counter of a {series.kind} was not read for {longest:.3g} s and may have wrapped"
    return None


def _compute_fastest_rise(seconds: Values, counts: Values, most: float) -> float:
    """Joules by which the counter rose more, between any two readings, than a device of ``most`` W can."""
    above = counts - most * seconds
    return float((above - np.minimum.accumulate(above)).max(initial=0))


def _select_readings(seconds: Values, values: Values, window: tuple[float, float]) -> tuple[Values, Values]:
    """Times and values of the known readings in a window, with the one before and the one after."""
    is_known = ~np.isnan(values)
    seconds, values = seconds[is_known], values[is_known]
    first = max(np.searchsorted(seconds, window[0], side="right") - 1, 0)
    last = np.searchsorted(seconds, window[1], side="left") + 1
    return seconds[first:last], values[first:last]


def _can_judge(series: Series, window: tuple[float, float], updates: int) -> bool:
    """Whether the sensor made enough updates, or would have if it had gone on at its usual rate: it may have frozen."""
    usual = _compute_usual_distance(series)
    return max(updates, (window[1] - window[0]) / usual) >= JUDGED_UPDATES


def _compute_usual_distance(series: Series) -> float:
    """Median seconds between two updates, by the sensor's count, else by its counter; infinite without any."""
    for values in (series.freshness, series.energy_j):
        is_known = ~np.isnan(values)
        if is_known.any():
            distances = np.diff(series.seconds[is_known][1:][np.diff(values[is_known]) != 0])
            distances = distances[distances > 0]
            return float(np.median(distances)) if len(distances) else np.inf
    return np.inf
