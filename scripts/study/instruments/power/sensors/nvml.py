"""NVIDIA GPUs through NVML (nvidia-ml-py): energy counter, power, utilisation, memory, clock, temperature.

Power comes in two forms: instantaneous, and averaged by the sensor (over one second on Ampere and later, where
nvidia-smi shows the average). The energy counter exists on Volta and later, in millijoules since the driver was loaded.
On a superchip such as GH200 it counts the whole module, CPU and memory included (ml-energy/zeus, pull request 172), so
that there the power of the GPU alone is used. A superchip is known by its name, or by a power of scope
``NVML_POWER_SCOPE_MODULE``, which no other GPU has.
"""

import re
from collections.abc import Iterator
from typing import Any

from study.instruments.power.readings import SENSORS, Counter, Device, Devices, Missing, Reading, Unavailable

MILLI = 1e-3
TOTAL_ENERGY, AVERAGE_POWER, INSTANT_POWER = 83, 185, 186  # NVML's field numbers
SUPERCHIP = re.compile(r"\bG[BH]\d+")  # GH200, GB200, GB10: a Grace processor with a Hopper or Blackwell GPU
MODULE_SCOPE = 1  # NVML_POWER_SCOPE_MODULE
NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND = 3, 4, 13  # codes of NVML's errors
FIELDS = [TOTAL_ENERGY, AVERAGE_POWER, INSTANT_POWER]
VALUES = {1: "uiVal", 2: "ulVal", 3: "ullVal"}  # the union's member for each unsigned type


@SENSORS.register("nvml")
def find(nvml: Any = None) -> Devices:
    """The GPUs of this host as a list of `Device`, named by UUID. nvml: the pynvml module or a replacement for it."""
    nvml = nvml or import_library()
    devices: dict[str, Device] = {}  # a GPU that is listed twice is read once
    missing: dict[str, Missing] = {}
    try:
        for part, handle, failed in list_handles(nvml):
            uuid = None
            try:
                if failed:
                    raise failed
                uuid = read_uuid(nvml, handle)
                if uuid not in devices:
                    devices[uuid] = Device("nvml", "gpu", uuid, _Gpu(nvml, handle).read)
            except Exception as error:  # also of bindings that lack a function: the other GPUs are read
                name = f"{part} ({uuid})" if uuid else part
                missing[name] = Missing("gpu", uuid or part, f"NVML: {name}: {_to_text(error)}")
    except nvml.NVMLError as error:
        raise Unavailable(f"NVML: {_to_text(error)}") from None
    return Devices(devices.values(), missing.values()).require_any("NVML: the driver sees no GPU")


def import_library() -> Any:
    """The pynvml module; raises `Unavailable` without it."""
    try:
        import pynvml
    except ImportError as error:
        raise Unavailable(f"NVML: the Python package nvidia-ml-py cannot be imported: {error}") from None
    return pynvml


def list_handles(nvml: Any) -> Iterator[tuple[str, Any, Exception | None]]:
    """(``GPU 0``, NVML's handle, None) of the GPUs of this host, in NVML's order; raises ``nvml.NVMLError``.

    A GPU that is lost has no handle but the error. GPUs that a container or batch job may not use are left out: NVML
    counts them (its reference, nvmlDeviceGetCount_v2), but CUDA does not number them.
    """
    nvml.nvmlInit()
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            yield f"GPU {index}", nvml.nvmlDeviceGetHandleByIndex(index), None
        except nvml.NVMLError as error:
            if getattr(error, "value", None) != NO_PERMISSION:
                yield f"GPU {index}", None, error


def is_partitioned(nvml: Any, handle: Any) -> bool:
    """True if a GPU is in MIG mode: CUDA then shows its parts, whatever name selects it.

    Raises:
        nvml.NVMLError: NVML does not say.
    """
    try:
        return nvml.nvmlDeviceGetMigMode(handle)[0] != 0
    except AttributeError:  # bindings of before MIG
        return False
    except nvml.NVMLError as error:
        if getattr(error, "value", NOT_SUPPORTED) in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            return False
        raise


def _to_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def read_uuid(nvml: Any, handle: Any) -> str:
    """A GPU's UUID as text (bytes in older bindings)."""
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return uuid.decode() if isinstance(uuid, bytes) else uuid


class _Gpu:
    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        has_counter = self._read_fields()[TOTAL_ENERGY] is not None and not self._is_in_module()
        self._energy = Counter(self._raw_energy, MILLI) if has_counter else None

    def read(self) -> Reading:
        """One `Reading`; None for a value that this GPU does not report."""
        fields = self._read_fields()
        memory = self._query("nvmlDeviceGetMemoryInfo")
        utilization = self._query("nvmlDeviceGetUtilizationRates")
        return Reading(
            power_w=self._read_power(fields),
            average_power_w=_to_watts(fields[AVERAGE_POWER]),
            energy_j=self._read_counter(),
            utilization_pct=None if utilization is None else float(utilization.gpu),
            memory_mb=None if memory is None else memory.used / 1e6,
            clock_mhz=self._query("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            temperature_c=self._query("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
        )

    def _read_fields(self) -> dict[int, int | None]:
        """{field: value or None}, read in one call; single fields may fail although the call succeeds."""
        try:
            fields = self._nvml.nvmlDeviceGetFieldValues(self._handle, FIELDS)
        except (self._nvml.NVMLError, AttributeError):  # the latter of bindings that know no fields
            fields = []
        values = {field.fieldId: _get_value(field, self._nvml.NVML_SUCCESS) for field in fields}
        self._last = {field: values.get(field) for field in FIELDS}
        return self._last

    def _is_in_module(self) -> bool:
        """Whether the GPU is part of a superchip: by its name, or as NVML tells the power of the module too."""
        name = self._query("nvmlDeviceGetName") or ""
        if SUPERCHIP.search(name.decode(errors="replace") if isinstance(name, bytes) else name):
            return True  # also with drivers and bindings that know no scopes
        try:
            fields = self._nvml.nvmlDeviceGetFieldValues(self._handle, [(INSTANT_POWER, MODULE_SCOPE)])
        except (self._nvml.NVMLError, AttributeError, TypeError):  # the latter of bindings that know no scopes
            return False
        values = {field.fieldId: _get_value(field, self._nvml.NVML_SUCCESS) for field in fields}
        return values.get(INSTANT_POWER) is not None

    def _read_counter(self) -> float | None:
        """The counter's total; None if it could not be read this time: then power is all there is."""
        return self._energy.total() if self._energy and self._last[TOTAL_ENERGY] is not None else None

    def _raw_energy(self) -> int:
        """The counter as `_read_fields` last read it."""
        return self._last[TOTAL_ENERGY] or 0

    def _read_power(self, fields: dict[int, int | None]) -> float | None:
        """Instantaneous power; if the driver does not have that field, the power that nvidia-smi shows."""
        instant = fields[INSTANT_POWER]
        return _to_watts(self._query("nvmlDeviceGetPowerUsage") if instant is None else instant)

    def _query(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):  # the latter of bindings without the function
            return None


def _get_value(field: Any, success: int) -> int | None:
    if field.nvmlReturn != success or field.valueType not in VALUES:
        return None
    return getattr(field.value, VALUES[field.valueType])


def _to_watts(milliwatts: float | None) -> float | None:
    return None if milliwatts is None else milliwatts * MILLI
