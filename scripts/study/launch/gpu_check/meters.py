"""Part 1, meters: energy counter against sampled power at three loads, update periods, averaging window, resolution.

All are of the first GPU that CUDA shows. Samples are kept as CSV.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.instruments.power.kinds import lag_s
from study.instruments.power.readings import Device
from study.launch.gpu_check.calls import FIELDS, raw_value
from study.launch.gpu_check.context import Context
from study.launch.gpu_check.results import write_csv

SECONDS = {"idle": 60.0, "full": 60.0, "alternating": 60.0}  # at the default of --minutes
LEAST_S = 10.0  # the ends of a window are known to one update, 1 % of this
RATE_HZ = 10.0  # of the sampler's default
HALF_S = 5.0  # of the alternation
SETTLE_S = 2.0  # longer than any sensor's averaging window
AGREE = 0.03
RISE = 1.2  # by how much a full load must raise power above idle
STEP_BEFORE_S, STEP_AFTER_S, POLL_S = 1.0, 3.0, 0.005
WINDOW_SLACK = 1.25  # two updates of 100 ms, and polling
LEAST_CHANGES = 5
LONGEST_UPDATE_S = 1.0
COARSEST_MJ = 10_000
COLUMNS = ("time_s", "load", "power_w", "average_power_w", "energy_j", "utilization_pct", "memory_mb", "clock_mhz",
           "temperature_c")  # fmt: skip
STEP_COLUMNS = ("time_s", "load", "energy_counter_mj", "average_power_mw", "instantaneous_power_mw", "shown_power_mw")
Values = NDArray[np.float64]
Rows = list[dict[str, Any]]


def check(context: Context) -> None:
    """Sample at each load; then the step response."""
    uuid = context.first()
    context.work.prepare(0)
    try:
        samples = _at_loads(context, uuid)
        counter = _step(context, uuid)
        _resolution(context, uuid, counter)
        _follows(context, uuid, samples)
    finally:
        context.work.stop()


def _at_loads(context: Context, uuid: str) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for load, full_s in SECONDS.items():
        seconds = max(LEAST_S, full_s * context.share)
        context.say(f"meters: {load} load for {seconds:g} s")
        rows = found[load] = sampled(context, context.device(uuid), seconds, load)
        write_csv(context.output / f"samples_{load}.csv", COLUMNS, rows)
        _agreement(context, uuid, load, rows)
    return found


def sampled(context: Context, device: Device, seconds: float, load: str) -> Rows:
    """Readings at `RATE_HZ`. An alternating load begins and ends low, so that a lagging sensor sees all of it."""
    half = min(HALF_S, seconds / 2)
    periods = max(1, round(seconds / (2 * half)))
    seconds = 2 * half * periods + SETTLE_S if load == "alternating" else seconds
    _set(context, is_on := load == "full")
    context.clock.sleep(SETTLE_S)
    begin, rows = context.clock.now(), []
    for number in range(round(seconds * RATE_HZ) + 1):
        context.clock.sleep(begin + number / RATE_HZ - context.clock.now())
        if load == "alternating":
            wanted = number / RATE_HZ % (2 * half) >= half and number / RATE_HZ < 2 * half * periods
            if wanted != is_on:
                _set(context, is_on := wanted)
        reading = device.read()
        rows.append({"time_s": context.clock.now() - begin, "load": int(is_on), **vars(reading)})
    _set(context, False)
    return rows


def _set(context: Context, is_on: bool) -> None:
    if is_on:
        context.work.start(0)
    else:
        context.work.stop()


def _column(rows: Rows, name: str) -> Values:
    return np.array([math.nan if row[name] is None else row[name] for row in rows], dtype=float)


def _agreement(context: Context, uuid: str, load: str, rows: Rows) -> None:
    """The counter's energy and the trapezoid of power."""
    name = f"energy counter against 10 Hz power, {load}"
    about = {"device": uuid, "unit": "%", "expected": f"at most {100 * AGREE:g}"}
    seconds, power, energy = (_column(rows, each) for each in ("time_s", "power_w", "energy_j"))
    if np.isnan(energy).any() or np.isnan(power).any():
        which = "energy counter" if np.isnan(energy).any() else "power"
        why = "as on GPUs before Volta and on superchips" if which == "energy counter" else "of this GPU or driver"
        context.rows.not_possible(name, f"there is no {which}, {why}, or some readings failed", **about)
        return
    counted = float(energy[-1] - energy[0])
    integral = float((np.diff(seconds) * (power[1:] + power[:-1]) / 2).sum())
    larger = max(abs(counted), abs(integral))
    apart = abs(counted - integral) / larger if larger else 1.0
    problem = _why(counted, integral, power, load) if apart > AGREE else None
    context.rows.judge(name, problem, 100 * apart, **about)
    watts = float(integral / (seconds[-1] - seconds[0]))
    context.rows.add(f"mean power, {load}", "pass", watts, device=uuid, unit="W", expected="told, not judged")


def _why(counted: float, integral: float, power: Values, load: str) -> str:
    told = f"counter {counted:.4g} J, power x time {integral:.4g} J"
    if counted <= 0:
        return f"{told}: the counter stood still or went back"
    if load == "alternating" and np.ptp(power) == 0:
        return f"{told}: the power stood still at {power[0]:.4g} W"
    ratio = counted / integral if integral else math.inf
    for factor, words in ((1000, "counts of 1 uJ"), (0.001, "counts of 1 J"), (1e-6, "counts of 1 kJ")):
        if abs(ratio / factor - 1) < 0.2:
            return f"{told}: the counter seems to have {words}, not of 1 mJ"
    return f"{told}: the counter shows {ratio:.3g} times the power's energy"


def _follows(context: Context, uuid: str, samples: dict[str, Rows]) -> None:
    """Power, utilisation and clock rate rise with the load."""
    for column, unit, least in (("power_w", "W", RISE), ("utilization_pct", "%", RISE)):
        idle, full = (float(np.median(_column(samples[load], column))) for load in ("idle", "full"))
        about = {"device": uuid, "unit": unit, "expected": f"above {least:g} x idle"}
        if math.isnan(idle) or math.isnan(full):
            context.rows.not_possible(f"{column} follows the load", "not all readings have it", **about)
            continue
        why = None if full > least * idle else f"{idle:.4g} {unit} idle, {full:.4g} {unit} at full load"
        context.rows.judge(f"{column} follows the load", why, full, **about)


def _step(context: Context, uuid: str) -> Values:
    """The answers to a load that begins at time 0; gives the counter's values."""
    context.say(f"meters: step response, {SETTLE_S + STEP_BEFORE_S + STEP_AFTER_S:g} s")
    context.work.stop()
    context.clock.sleep(SETTLE_S)
    read = partial(_raw, context.nvml, context.handle(uuid))
    rows = _polled(context, read, 0, STEP_BEFORE_S, context.clock.now() + STEP_BEFORE_S)
    begin = context.clock.now()
    context.work.start(0)
    rows += _polled(context, read, 1, STEP_AFTER_S, begin)
    context.work.stop()
    write_csv(context.output / "samples_step.csv", STEP_COLUMNS, rows)
    seconds = _column(rows, "time_s")
    for name in STEP_COLUMNS[2:]:
        _period(context, uuid, name, seconds, _column(rows, name))
    for name in STEP_COLUMNS[3:]:
        _window(context, uuid, name, seconds, _column(rows, name))
    return _column(rows, "energy_counter_mj")


def _polled(context: Context, read: Callable[[], dict[str, Any]], load: int, seconds: float, zero: float) -> Rows:
    rows, begin = [], context.clock.now()
    while (now := context.clock.now()) < begin + seconds:
        rows.append({"time_s": now - zero, "load": load, **read()})
        context.clock.sleep(POLL_S)
    return rows


def _raw(nvml: Any, handle: Any) -> dict[str, int | None]:
    """Raw values by column; None for one that cannot be read."""
    try:
        fields = {each.fieldId: raw_value(each) for each in nvml.nvmlDeviceGetFieldValues(handle, list(FIELDS))}
    except (nvml.NVMLError, AttributeError):
        fields = {}
    try:
        shown = nvml.nvmlDeviceGetPowerUsage(handle)
    except (nvml.NVMLError, AttributeError):
        shown = None
    return dict(zip(STEP_COLUMNS[2:], [*(fields.get(field) for field in FIELDS), shown], strict=True))


def _period(context: Context, uuid: str, name: str, seconds: Values, values: Values) -> None:
    """The median time between two changes of a value; powers change at each update only while they rise."""
    about = {"device": uuid, "unit": "s", "expected": f"at most {LONGEST_UPDATE_S:g}"}
    check_name = f"update period, {name}"
    if np.isnan(values).all():
        context.rows.not_possible(check_name, "this GPU or driver does not tell it", **about)
        return
    changes = seconds[1:][np.diff(values) != 0]
    is_counter = name == "energy_counter_mj"  # which changes at each update, at any load
    if is_counter and len(changes) < 2:
        context.rows.judge(check_name, f"it changed {len(changes)} times in {seconds[-1] - seconds[0]:.3g} s", **about)
    elif len(changes) < LEAST_CHANGES and not is_counter:
        context.rows.not_possible(check_name, f"it changed {len(changes)} times only, at a steady load", **about)
    else:
        period = float(np.median(np.diff(changes)))
        why = None if period <= LONGEST_UPDATE_S else "slower than the doubts on a standing counter allow"
        context.rows.judge(check_name, why, period, **about)


def _window(context: Context, uuid: str, name: str, seconds: Values, values: Values) -> None:
    """A mean over a window rises evenly in the window's length after a step: from 10 to 90 % in 0.8 of it."""
    check_name = f"averaging window, {name}"
    most = WINDOW_SLACK * lag_s("nvml")
    about = {"device": uuid, "unit": "s", "expected": f"at most {most:g}"}
    known = ~np.isnan(values)
    if not known.any():
        context.rows.not_possible(check_name, "this GPU or driver does not tell it", **about)
        return
    seconds, values = seconds[known], values[known]
    low, high = np.median(values[seconds < 0]), np.median(values[seconds > seconds[-1] - STEP_AFTER_S / 6])
    if not high > RISE * low:
        context.rows.judge(check_name, f"it stayed at {low:g} to {high:g} mW when the load began", **about)
        return
    after = seconds >= 0
    tenth, ninth = (float(seconds[after & (values >= low + part * (high - low))][0]) for part in (0.1, 0.9))
    window = (ninth - tenth) / 0.8
    why = None if window <= most else f"this project takes power for a mean over at most {lag_s('nvml'):g} s"
    context.rows.judge(check_name, why, window, **about)
    context.rows.judge(f"delay to 10 %, {name}", None if tenth <= most else "late", tenth, **about)


def _resolution(context: Context, uuid: str, counter: Values) -> None:
    """The greatest common divisor of the counter's steps."""
    about = {"device": uuid, "unit": "mJ", "expected": f"1 to {COARSEST_MJ}"}
    known = counter[~np.isnan(counter)]
    steps = [round(abs(step)) for step in np.diff(known) if step]
    if not len(known):
        context.rows.not_possible("counter resolution", "there is no counter", **about)
    elif not steps:
        context.rows.judge("counter resolution", "the counter did not move", **about)
    else:
        found = math.gcd(*steps)
        context.rows.judge("counter resolution", None if found <= COARSEST_MJ else "coarser", found, **about)
