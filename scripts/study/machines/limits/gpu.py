"""Power limit and clock rate of NVIDIA GPUs, through NVML; setting either needs root (NVML's reference).

Source: NVML API Reference, Device Commands: nvmlDeviceSetPowerManagementLimit takes milliwatts, within
nvmlDeviceGetPowerManagementLimitConstraints; nvmlDeviceSetGpuLockedClocks takes MHz. NVML does not tell whether clock
rates are locked, so they are unlocked afterwards, whatever held before.
"""

from typing import Any

from study.instruments.power import gpus
from study.instruments.power.readings import Unavailable
from study.instruments.power.sensors import nvml as sensor
from study.machines.limits.base import Limit, Place, Refused, limit

MILLI = 1e-3
REMEDY = {
    sensor.NO_PERMISSION: "no permission; only root may, also in a container",
    sensor.NOT_SUPPORTED: "this GPU or driver does not support it",
}
CLOCK_STEP_MHZ = 15  # of NVIDIA's GPUs since Pascal


class _OfGpu(Limit):
    """A limit of each GPU that CUDA shows to the ranks, by UUID."""

    def devices(self, place: Place) -> list[str]:
        nvml = _library(place)
        try:
            shown = gpus.visible(place.variables, nvml)
        except nvml.NVMLError as error:
            raise Refused(f"NVML: {error}") from None
        if not shown:
            try:
                number = sum(1 for _ in sensor.handles(nvml))
            except nvml.NVMLError as error:
                raise Refused(f"NVML: {error}") from None
            why = "CUDA_VISIBLE_DEVICES shows none of its GPUs" if number else "the driver sees no GPU"
            raise Refused(f"NVML: {why}")
        if None in shown:
            raise Refused("a GPU is in MIG mode, or cannot be identified: a limit would hold for all of its parts")
        return [uuid for uuid in dict.fromkeys(shown) if uuid]

    def _asked(self, place: Place, device: str, function: str, *arguments: Any) -> Any:
        """The answer of NVML on a device; raises `Refused` with the function and NVML's reason."""
        nvml = _library(place)
        try:
            return getattr(nvml, function)(_handle(nvml, device), *arguments)
        except AttributeError:
            raise Refused(f"{device}: nvidia-ml-py has no {function}; install a newer one") from None
        except nvml.NVMLError as error:
            why = REMEDY.get(getattr(error, "value", None), "")  # type: ignore[arg-type]
            raise Refused(f"{device}: {function}: {why or error}") from None


@limit("gpu_power_limit_w")
class GpuPowerLimit(_OfGpu):
    """The power limit of a GPU, in watts."""

    unit = "W"

    def check(self, place: Place, device: str, value: float) -> None:
        """The value must lie within the driver's range."""
        least, most = self._asked(place, device, "nvmlDeviceGetPowerManagementLimitConstraints")
        if not least <= value / MILLI <= most:
            raise Refused(f"{value:g} W on {device}: the driver allows {least * MILLI:g} to {most * MILLI:g} W")

    def current(self, place: Place, device: str) -> int:
        """Milliwatts."""
        return int(self._asked(place, device, "nvmlDeviceGetPowerManagementLimit"))

    def write(self, place: Place, device: str, value: float) -> None:
        """Watts."""
        self._asked(place, device, "nvmlDeviceSetPowerManagementLimit", round(value / MILLI))

    def read_back(self, place: Place, device: str) -> float:
        """Watts."""
        return self.current(place, device) * MILLI

    def restore(self, place: Place, device: str, before: int) -> None:
        """Milliwatts; read back too."""
        self._asked(place, device, "nvmlDeviceSetPowerManagementLimit", before)
        if (found := self.current(place, device)) != before:
            raise Refused(f"{device}: its power limit is {found * MILLI:g} W, and was {before * MILLI:g} W before")


@limit("gpu_clock_mhz")
class GpuClock(_OfGpu):
    """The clock rate to which a GPU is locked, in MHz."""

    unit = "MHz"

    def check(self, place: Place, device: str, value: int) -> None:
        """The value must be among the supported clock rates, at the highest clock rate of the memory."""
        rates = self._supported(place, device)
        if value not in rates:
            near = sorted(sorted(rates, key=lambda rate: abs(rate - value))[:2])
            raise Refused(
                f"{value} MHz on {device}: it supports {min(rates)} to {max(rates)} MHz; "
                f"nearest: {' or '.join(map(str, near))}"
            )

    def _supported(self, place: Place, device: str) -> list[int]:
        memory = self._asked(place, device, "nvmlDeviceGetSupportedMemoryClocks")
        return list(self._asked(place, device, "nvmlDeviceGetSupportedGraphicsClocks", max(memory)))

    def current(self, place: Place, device: str) -> None:
        """Nothing: NVML does not tell whether clock rates are locked."""

    def write(self, place: Place, device: str, value: int) -> None:
        """MHz, for both ends of the range."""
        self._asked(place, device, "nvmlDeviceSetGpuLockedClocks", value, value)

    def read_back(self, place: Place, device: str) -> int:
        """The present clock rate of the multiprocessors."""
        return int(self._asked(place, device, "nvmlDeviceGetClockInfo", _library(place).NVML_CLOCK_SM))

    def agrees(self, value: float, found: Any) -> bool:
        """An idle GPU may run slower; none may run faster."""
        return found is not None and found <= value + CLOCK_STEP_MHZ

    def restore(self, place: Place, device: str, before: Any) -> None:
        """Unlock."""
        self._asked(place, device, "nvmlDeviceResetGpuLockedClocks")


def _library(place: Place) -> Any:
    if place.nvml is not None:
        return place.nvml
    try:
        return sensor.library()
    except Unavailable as error:
        raise Refused(str(error)) from None


def _handle(nvml: Any, uuid: str) -> Any:
    """NVML's handle of a GPU by its UUID."""
    for _, handle, error in sensor.handles(nvml):
        if error is None and sensor.uuid_of(nvml, handle) == uuid:
            return handle
    raise Refused(f"{uuid}: NVML lists no such GPU, or it is lost")
