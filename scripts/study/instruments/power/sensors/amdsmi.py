"""AMD Instinct GPUs through AMD SMI: energy counter, power, utilisation, memory, clock, temperature.

The Python package ``amdsmi`` comes with ROCm and fits its release, so it is not among the locked packages.

- **Energy** is ``energy_accumulator`` (before release 6.2.1: ``power``) times ``counter_resolution``, in microjoules.
- **Power** is ``current_socket_power`` on MI300, ``average_socket_power`` before; a value that a GPU does not have is
  ``N/A`` or a number of ones only (AMD SMI's reference, amdsmi_power_info_t).
- **Two dies.** Each die of an MI250 or MI250X is a GPU for HIP. The first die tells power and energy of both. The
  second one has neither: its counter stays 0, by which ROCm's rocm_smi.py knows it too. So it is no device here, and a
  first die stands for its whole module.
- **Partitions.** A GPU in several partitions (DPX, CPX) is as many GPUs for HIP: functions of one PCI device. Power and
  energy are the socket's. The first partition tells them, and releases differ in whether the others repeat them, so a
  PCI device is one meter, as a GPU with MIG instances is.
- **Number.** GPUs are named by the number that HIP gives them without HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES
  (amdsmi_get_gpu_enumeration_info), since AMD SMI's own order may be another one; else by their PCI address.
"""

from typing import Any

from study.instruments.power.readings import SENSORS, Counter, Device, Devices, Missing, Reading, Unavailable

MICRO = 1e-6
ABSENT = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # values of which all bits are 1


@SENSORS.register("amdsmi")
def find(smi: Any = None) -> Devices:
    """The GPUs of this host as a list of `Device`. smi: the amdsmi module or a replacement for it."""
    smi = smi or _import_library()
    try:
        smi.amdsmi_init()
        handles = smi.amdsmi_get_processor_handles()
    except smi.AmdSmiException as error:
        raise Unavailable(f"AMD SMI: {error}") from None
    sockets: dict[str, list[tuple[str, _Gpu]]] = {}  # by PCI device
    missing: list[Missing] = []
    for index, handle in enumerate(handles):
        name = f"GPU {index}"
        try:
            name, socket = _read_name(smi, handle, name), _read_pci_device(smi, handle, name)
            gpu = _Gpu(smi, handle)
            if not gpu.is_second_die:
                sockets.setdefault(socket, []).append((name, gpu))
        except (smi.AmdSmiException, AttributeError, KeyError) as error:  # the others of bindings of another release
            missing.append(Missing("gpu", name, f"AMD SMI: {name}: {error or type(error).__name__}"))
    devices = []
    for partitions in sockets.values():
        name, gpu = next((each for each in partitions if each[1].has_meter), partitions[0])
        devices.append(Device("amdsmi", "gpu", name, gpu.read))
    return Devices(devices, missing).require_any("AMD SMI: the driver sees no GPU")


def _import_library() -> Any:
    try:
        import amdsmi
    except (ImportError, OSError, KeyError) as error:  # the latter two if ROCm's library is not found
        raise Unavailable(f"AMD SMI: ROCm's Python package amdsmi cannot be imported: {error}") from None
    return amdsmi


def _read_name(smi: Any, handle: Any, otherwise: str) -> str:
    """``hip-0``, or the PCI address where the driver does not tell HIP's number."""
    try:
        number = _to_number(smi.amdsmi_get_gpu_enumeration_info(handle)["hip_id"])
        if number is not None:
            return f"hip-{int(number)}"
    except (smi.AmdSmiException, AttributeError, KeyError):
        pass
    try:
        return str(smi.amdsmi_get_gpu_device_bdf(handle))
    except smi.AmdSmiException:
        return otherwise


def _read_pci_device(smi: Any, handle: Any, otherwise: str) -> str:
    """``0000:c1:00``, the PCI address without the function; ``otherwise`` where the driver does not tell it."""
    try:
        return str(smi.amdsmi_get_gpu_device_bdf(handle)).rpartition(".")[0] or otherwise
    except smi.AmdSmiException:
        return otherwise


class _Gpu:
    def __init__(self, smi: Any, handle: Any) -> None:
        self._smi, self._handle = smi, handle
        raw = self._read_raw()
        powers = self._read_powers()
        self.is_second_die = raw == 0 and not any(powers)
        self.has_meter = raw is not None or powers != (None, None)
        self._counter = None
        if raw is not None:
            unit = float(smi.amdsmi_get_energy_count(handle)["counter_resolution"]) * MICRO
            self._counter = Counter(self._read_counter, unit)

    def read(self) -> Reading:
        """One `Reading`; None for a value that this GPU does not report."""
        smi = self._smi
        instant, average = self._read_powers()
        activity = self._query("amdsmi_get_gpu_activity") or {}
        clock = self._query("amdsmi_get_clock_info", smi.AmdSmiClkType.GFX) or {}
        memory = _to_number(self._query("amdsmi_get_gpu_memory_usage", smi.AmdSmiMemoryType.VRAM))
        kind, metric = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        return Reading(
            power_w=average if instant is None else instant,
            average_power_w=average,
            energy_j=self._counter.total() if self._counter else None,
            utilization_pct=_to_number(activity.get("gfx_activity")),
            memory_mb=None if memory is None else memory / 1e6,
            clock_mhz=_to_number(clock.get("clk", clock.get("cur_clk"))),
            temperature_c=_to_number(self._query("amdsmi_get_temp_metric", kind, metric)),
        )

    def _read_powers(self) -> tuple[float | None, float | None]:
        """(instantaneous, averaged) power in W."""
        info = self._query("amdsmi_get_power_info") or {}
        return _to_number(info.get("current_socket_power")), _to_number(info.get("average_socket_power"))

    def _read_raw(self) -> int | None:
        """The energy counter's value; None if this GPU has none."""
        info = self._query("amdsmi_get_energy_count") or {}
        value = _to_number(info.get("energy_accumulator", info.get("power")))
        return None if value is None else int(value)

    def _read_counter(self) -> int:
        """The counter's value; raises OSError where it cannot be read now."""
        raw = self._read_raw()
        if raw is None:
            raise OSError("AMD SMI: the energy counter cannot be read")
        return raw

    def _query(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._smi, function)(self._handle, *arguments)
        except (self._smi.AmdSmiException, AttributeError):  # the latter of bindings without the function
            return None


def _to_number(value: Any) -> float | None:
    """AMD SMI's value, or None for its "not available" markers."""
    return value if isinstance(value, int | float) and value not in ABSENT else None
