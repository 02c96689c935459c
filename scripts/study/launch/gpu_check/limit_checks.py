"""Part 3: a power limit and a clock rate are set, take effect under load, and are put back, where that is permitted."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.launch.gpu_check.context import Context
from study.launch.gpu_check.results import NotPossible
from study.machines.limits import LIMITS, Place

MILLI = 1e-3
PART_OF_RANGE = 0.5  # between the driver's least limit and the present one
SETTLE_S, MEASURE_S, EVERY_S = 3.0, 3.0, 0.1
ABOVE = 1.05  # of a power limit, by the mean power under load
CLOCK_STEP_MHZ = 15
REFUSALS = ("no permission", "does not support", "has no nvml", "no folder for what must be put back")


def check(context: Context) -> None:
    """Both limits, one after the other, on the first GPU that CUDA shows."""
    uuid = context.first()
    context.work.prepare(0)
    one = Place(variables={**context.variables, "CUDA_VISIBLE_DEVICES": uuid}, nvml=context.nvml)
    for limit, choose, judge in (("gpu_power_limit_w", power_limit, _power), ("gpu_clock_mhz", _clock_rate, _clock)):
        context.say(f"limits: {limit}")
        try:
            _of(context, one, uuid, limit, choose, judge)
        except NotPossible as why:
            context.rows.not_possible(limit, why, device=uuid)
        finally:
            context.work.stop()


def _of(
    context: Context,
    place: Place,
    uuid: str,
    name: str,
    choose: Callable[[Context, str], float],
    judge: Callable[[Context, str, float], tuple[float, str | None]],
) -> None:
    """Set, measure under load, restore, and see that it is restored."""
    limit, rows = LIMITS[name], context.rows
    about = {"device": uuid, "unit": limit.unit}
    value = choose(context, uuid)
    before = _before(place, uuid, name)
    try:
        with context.limited(uuid, {name: value}) as settings:
            rows.add(f"{name} is set and read back", "pass", settings[0]["read_back"], expected=f"{value:g}", **about)
            measured, problem = judge(context, uuid, value)
            rows.judge(f"{name} holds under load", problem, measured, expected=f"at most {value:g}", **about)
    except StudyError as refused:
        text = str(refused)
        if not any(words in text for words in REFUSALS):
            rows.judge(f"{name} is set and read back", text, expected=f"{value:g}", **about)
            return
        raise NotPossible(text) from None
    lost = [each["why"] for each in settings if not each.get("restored")]
    after = _before(place, uuid, name)
    problem = f"it is {after}, and was {before}" if after != before else None
    rows.judge(f"{name} is put back", "; ".join(map(str, lost)) or problem, expected="as before", **about)


def _before(place: Place, uuid: str, name: str) -> Any:
    try:
        return LIMITS[name].current(place, uuid)
    except StudyError as refused:
        raise NotPossible(refused) from None


def power_limit(context: Context, uuid: str) -> float:
    """Watts, between the least limit and the present one."""
    nvml = context.nvml
    try:
        least, _ = nvml.nvmlDeviceGetPowerManagementLimitConstraints(context.handle(uuid))
        present = nvml.nvmlDeviceGetPowerManagementLimit(context.handle(uuid))
    except (nvml.NVMLError, AttributeError) as error:
        raise NotPossible(f"the range of power limits: {error}") from None
    if least >= present:
        raise NotPossible("the power limit is the least one already")
    return float(round((least + PART_OF_RANGE * (present - least)) * MILLI))


def _clock_rate(context: Context, uuid: str) -> int:
    """MHz, the middle one of those that are supported."""
    nvml, handle = context.nvml, context.handle(uuid)
    try:
        memory = max(nvml.nvmlDeviceGetSupportedMemoryClocks(handle))
        rates = sorted(nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory))
    except (nvml.NVMLError, AttributeError) as error:
        raise NotPossible(f"the supported clock rates: {error}") from None
    return int(rates[len(rates) // 2])


def _readings(context: Context, uuid: str, column: str) -> Sequence[float]:
    """Of the project's sensor under full load."""
    device = context.device(uuid)
    context.work.start(0)
    context.clock.sleep(SETTLE_S)
    found = []
    for _ in range(round(MEASURE_S / EVERY_S)):
        found.append(getattr(device.read(), column))
        context.clock.sleep(EVERY_S)
    context.work.stop()
    known = [value for value in found if value is not None]
    if not known:
        raise NotPossible(f"{column} cannot be read under load")
    return known


def _power(context: Context, uuid: str, value: float) -> tuple[float, str | None]:
    mean = float(np.mean(_readings(context, uuid, "power_w")))
    return mean, None if mean <= ABOVE * value else f"mean power under load is {mean:.4g} W"


def _clock(context: Context, uuid: str, value: float) -> tuple[float, str | None]:
    highest = max(_readings(context, uuid, "clock_mhz"))
    return highest, None if highest <= value + CLOCK_STEP_MHZ else f"the clock rate under load is {highest:g} MHz"
