"""NVIDIA GPUs through NVML (nvidia-ml-py): energy counter, power, utilisation, memory, clock, temperature.

Power comes in two forms: instantaneous, and averaged by the sensor (over one second on Ampere and later, where
nvidia-smi shows the average). The energy counter exists on Volta and later, in millijoules since the driver was loaded.
"""

from typing import Any

from study.instruments.power.readings import SENSORS, Counter, Device, Reading, Unavailable

MILLI = 1e-3
TOTAL_ENERGY, AVERAGE_POWER, INSTANT_POWER = 83, 185, 186  # NVML's field numbers
FIELDS = [TOTAL_ENERGY, AVERAGE_POWER, INSTANT_POWER]
VALUES = {1: "uiVal", 2: "ulVal", 3: "ullVal"}  # the union's member for each unsigned type


@SENSORS.register("nvml")
def find(nvml: Any = None) -> list[Device]:
    """The GPUs of this host as a list of `Device`, named by UUID. nvml: the pynvml module or a replacement for it."""
    nvml = nvml or library()
    try:
        devices = [_device(nvml, handle) for handle in handles(nvml)]
    except nvml.NVMLError as error:
        raise Unavailable(f"NVML: {error}") from None
    if not devices:
        raise Unavailable("NVML: the driver sees no GPU")
    return devices


def library() -> Any:
    """The pynvml module."""
    import pynvml

    return pynvml


def handles(nvml: Any) -> list[Any]:
    """NVML's handles of all GPUs of this host, in NVML's order; raises ``nvml.NVMLError``."""
    nvml.nvmlInit()
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def _device(nvml: Any, handle: Any) -> Device:
    return Device("nvml", "gpu", uuid_of(nvml, handle), _Gpu(nvml, handle).read)


def uuid_of(nvml: Any, handle: Any) -> str:
    """A GPU's UUID as text; older bindings give bytes."""
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return uuid.decode() if isinstance(uuid, bytes) else uuid


class _Gpu:
    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        has_counter = self._fields()[TOTAL_ENERGY] is not None
        self._energy = Counter(self._raw_energy, MILLI) if has_counter else None

    def read(self) -> Reading:
        """One `Reading`; None for a value that this GPU does not report."""
        fields = self._fields()
        memory = self._asked("nvmlDeviceGetMemoryInfo")
        utilization = self._asked("nvmlDeviceGetUtilizationRates")
        return Reading(
            power_w=self._power(fields),
            average_power_w=_scaled(fields[AVERAGE_POWER]),
            energy_j=self._energy.total() if self._energy else None,
            utilization_pct=None if utilization is None else float(utilization.gpu),
            memory_mb=None if memory is None else memory.used / 1e6,
            clock_mhz=self._asked("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            temperature_c=self._asked("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
        )

    def _fields(self) -> dict[int, int | None]:
        """{field: value or None}, read in one call; single fields may fail although the call succeeds."""
        try:
            found = self._nvml.nvmlDeviceGetFieldValues(self._handle, FIELDS)
        except self._nvml.NVMLError:
            found = []
        values = {field.fieldId: _value(field, self._nvml.NVML_SUCCESS) for field in found}
        self._last = {field: values.get(field) for field in FIELDS}
        return self._last

    def _raw_energy(self) -> int:
        """The counter as `_fields` last read it."""
        energy = self._last[TOTAL_ENERGY]
        if energy is None:
            raise OSError("NVML: the energy counter could not be read")
        return energy

    def _power(self, fields: dict[int, int | None]) -> float | None:
        """Instantaneous power; if the driver does not have that field, the power that nvidia-smi shows."""
        instant = fields[INSTANT_POWER]
        return _scaled(self._asked("nvmlDeviceGetPowerUsage") if instant is None else instant)

    def _asked(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None


def _value(field: Any, success: int) -> int | None:
    if field.nvmlReturn != success or field.valueType not in VALUES:
        return None
    return getattr(field.value, VALUES[field.valueType])


def _scaled(milliwatts: float | None) -> float | None:
    return None if milliwatts is None else milliwatts * MILLI
