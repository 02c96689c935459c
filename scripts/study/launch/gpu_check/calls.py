"""Part 1, calls: every NVML function that this project reads with, its return code, unit and plausibility, on each GPU.

Functions that set something are called by the part on limits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from study.instruments.power.kinds import most_w
from study.instruments.power.readings import Unavailable
from study.instruments.power.sensors import nvml as sensor
from study.launch.gpu_check.context import Context

ABOVE_LIMIT = 1.1  # power may exceed the limit for a moment
ABSENT = (sensor.NOT_SUPPORTED, sensor.NO_PERMISSION, sensor.FUNCTION_NOT_FOUND)
Judge = Callable[[Any, float], str | None]  # (answer, power limit in mW) -> why it is not plausible


@dataclass(frozen=True)
class Call:
    """A function of a GPU's handle. arguments: names of NVML's constants. shown: what of the answer is printed."""

    function: str
    unit: str
    expected: str
    judge: Judge
    arguments: tuple[str, ...] = ()
    shown: Callable[[Any], object] = lambda answer: answer


def _within(least: float, most: float) -> Judge:
    return lambda value, _: None if least <= value <= most else f"{value:g} is not within {least:g} to {most:g}"


def _power(milliwatts: float, limit_mw: float) -> str | None:
    if 0 < milliwatts <= ABOVE_LIMIT * limit_mw:
        return None
    return f"{milliwatts:g} mW is not above 0 and within {ABOVE_LIMIT:g} x the limit of {limit_mw:g} mW"


def _text(answer: Any) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)


def _rates(rates: Any, _: float) -> str | None:
    return None if len(rates) and min(rates) > 0 and max(rates) < 20_000 else f"not a list of rates: {rates}"


CALLS = (
    Call("nvmlDeviceGetUUID", "text", "begins with GPU-",
         lambda uuid, _: None if _text(uuid).startswith("GPU-") else f"{_text(uuid)!r} is no UUID of a GPU",
         shown=_text),
    Call("nvmlDeviceGetName", "text", "not empty", lambda name, _: None if _text(name) else "it is empty", shown=_text),
    Call("nvmlDeviceGetMigMode", "0 or 1, now and after a restart", "0, off",
         lambda mode, _: "MIG mode is on: NVML's power and energy are those of all instances together, so this project "
         "gives none to a run on an instance" if mode[0] else None),
    Call("nvmlDeviceGetPowerManagementLimit", "mW", "within the driver's range",
         _within(1000, 1000 * most_w("nvml", "gpu"))),
    Call("nvmlDeviceGetPowerManagementLimitConstraints", "mW", "the limit lies within",
         lambda ends, limit: None if 0 < ends[0] <= limit <= ends[1] else f"the limit, {limit:g} mW, is not in {ends}"),
    Call("nvmlDeviceGetPowerUsage", "mW", "above 0, within the limit", _power),
    Call("nvmlDeviceGetMemoryInfo", "B used", "0 or more, within the total",
         lambda memory, _: None if 0 <= memory.used <= memory.total and memory.total > 2**28
         else f"{memory.used} B of {memory.total} B", shown=lambda memory: memory.used),
    Call("nvmlDeviceGetUtilizationRates", "%", "0 to 100",
         lambda rates, limit: _within(0, 100)(rates.gpu, limit), shown=lambda rates: rates.gpu),
    Call("nvmlDeviceGetClockInfo", "MHz", "1 to 10000", _within(1, 10_000), ("NVML_CLOCK_SM",)),
    Call("nvmlDeviceGetTemperature", "Celsius", "1 to 120", _within(1, 120), ("NVML_TEMPERATURE_GPU",)),
    Call("nvmlDeviceGetCurrentClocksThrottleReasons", "bits", "0 to 511", _within(0, 511)),
    Call("nvmlDeviceGetSupportedMemoryClocks", "MHz", "a list", _rates, shown=max),
)  # fmt: skip
CLOCKS = Call("nvmlDeviceGetSupportedGraphicsClocks", "MHz", "a list", _rates, shown=max)
FIELDS = {
    sensor.TOTAL_ENERGY: ("total energy", "mJ"),
    sensor.AVERAGE_POWER: ("average power", "mW"),
    sensor.INSTANT_POWER: ("instantaneous power", "mW"),
}


def check(context: Context) -> None:
    """Every call, on each GPU of the host."""
    nvml, rows = context.nvml, context.rows
    for function in ("nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"):
        try:
            rows.add(function, "pass", _text(getattr(nvml, function)()), expected="return code 0")
        except nvml.NVMLError as error:
            rows.judge(function, code(error), expected="return code 0")
    for index in range(nvml.nvmlDeviceGetCount()):
        _of_gpu(context, index)
    _sensor(context)


def _of_gpu(context: Context, index: int) -> None:
    nvml, rows, name = context.nvml, context.rows, f"GPU {index}"
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        if error.value == sensor.NO_PERMISSION:
            rows.not_possible("nvmlDeviceGetHandleByIndex", f"{code(error)}: it is not of this job", device=name)
        else:
            rows.judge("nvmlDeviceGetHandleByIndex", code(error), device=name, expected="return code 0")
        return
    rows.judge("nvmlDeviceGetHandleByIndex", None, device=name, expected="return code 0")
    try:
        limit_mw = float(nvml.nvmlDeviceGetPowerManagementLimit(handle))
    except (nvml.NVMLError, AttributeError):
        limit_mw = 1000 * most_w("nvml", "gpu")
    for call in CALLS:
        arguments = [getattr(nvml, constant) for constant in call.arguments]
        answer = _call(context, name, handle, call, arguments, limit_mw)
        if call.function == "nvmlDeviceGetSupportedMemoryClocks" and answer:
            _call(context, name, handle, CLOCKS, [max(answer)], limit_mw)
    _fields(context, name, handle, limit_mw)


def _call(context: Context, name: str, handle: Any, call: Call, arguments: list[Any], limit_mw: float) -> Any:
    """Its answer; None if it has none."""
    nvml, rows = context.nvml, context.rows
    about = {"device": name, "unit": call.unit, "expected": call.expected}
    try:
        answer = getattr(nvml, call.function)(handle, *arguments)
        rows.judge(call.function, call.judge(answer, limit_mw), call.shown(answer), **about)
        return answer
    except AttributeError:
        rows.not_possible(call.function, "this nvidia-ml-py has no such function; install a newer one", **about)
    except nvml.NVMLError as error:
        if getattr(error, "value", None) in ABSENT:
            rows.not_possible(call.function, code(error), **about)
        else:
            rows.judge(call.function, code(error), **about)
    return None


def _fields(context: Context, name: str, handle: Any, limit_mw: float) -> None:
    """nvmlDeviceGetFieldValues, whose fields have return codes of their own; and the power of a module."""
    nvml, rows, function = context.nvml, context.rows, "nvmlDeviceGetFieldValues"
    try:
        found = nvml.nvmlDeviceGetFieldValues(handle, list(FIELDS))
    except (nvml.NVMLError, AttributeError) as error:
        rows.judge(function, f"{code(error)}: without it a run has no energy counter", device=name)
        return
    for field in found:
        what, unit = FIELDS[field.fieldId]
        about = {"device": name, "unit": unit}
        check_name = f"{function} {field.fieldId}, {what}"
        value = raw_value(field)
        if field.nvmlReturn in ABSENT:
            rows.not_possible(check_name, f"return code {field.nvmlReturn} of the field", **about)
        elif value is None:
            rows.judge(check_name, f"return code {field.nvmlReturn}, type {field.valueType}", **about)
        elif field.fieldId == sensor.TOTAL_ENERGY:
            rows.judge(check_name, None if value >= 0 else "below 0", value, expected="0 or more", **about)
        else:
            rows.judge(check_name, _power(value, limit_mw), value, expected="above 0, within the limit", **about)


def _sensor(context: Context) -> None:
    """The project's own sensor finds each GPU, and reads each of its columns."""
    rows, check_name = context.rows, "the project's NVML sensor"
    try:
        found = sensor.find(context.nvml)
    except Unavailable as error:
        rows.judge(check_name, str(error))
        return
    for missing in getattr(found, "missing", ()):
        rows.judge(check_name, missing.why, device=missing.part)
    for device in found:
        absent = [name for name, value in vars(device.read()).items() if value is None and name != "freshness"]
        expected = "a value in each column"
        if absent:
            rows.not_possible(f"{check_name}: {', '.join(absent)}", "this GPU or driver does not tell",
                              device=device.name, expected=expected)  # fmt: skip
        else:
            rows.judge(check_name, None, device=device.name, expected=expected)


def raw_value(field: Any) -> int | None:
    """The number in an answer of nvmlDeviceGetFieldValues; None if it has none."""
    if field.nvmlReturn != 0 or field.valueType not in sensor.VALUES:
        return None
    return int(getattr(field.value, sensor.VALUES[field.valueType]))


def code(error: Exception) -> str:
    """NVML's return code in words."""
    value = getattr(error, "value", None)
    return f"{error or type(error).__name__}" if value is None else f"return code {value}: {error}"
