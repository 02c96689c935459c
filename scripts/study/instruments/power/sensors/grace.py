"""NVIDIA Grace (Grace CPU superchip, GH200, GB200): the processor's power by the kernel's hwmon driver ``power_meter``.

Firmware describes each meter in ``power1_oem_info``, one meter per hwmon device. Sources: NVIDIA's Grace Performance
Tuning Guide, power telemetry; the kernel's Documentation/hwmon/acpi_power_meter.rst.

- ``Grace Power Socket N``: a whole Grace, with its memory. This one is read.
- ``CPU Power Socket N`` and ``SysIO Power Socket N``: parts of it.
- ``Module Power Socket N``: Grace and its GPU together. The GPU is read by sensor ``nvml``.

``power1_average`` holds microwatts, a mean over 50 ms to one second as the firmware is set. There is no energy counter.
"""

import re
from collections.abc import Callable
from pathlib import Path

from study.core.cores import contents
from study.core.files import AnyPath
from study.instruments.power.readings import SENSORS, Device, Found, Missing, Reading, reason

ROOT = Path("/sys/class/hwmon")
DRIVER = "power_meter"
WHOLE = re.compile(r"Grace Power Socket (\d+)")
MICRO = 1e-6


@SENSORS.register("grace")
def find(root: AnyPath = ROOT) -> Found:
    """One `Device` of kind ``cpu`` for each Grace; raises `Unavailable` if there is none that can be read."""
    chips = [chip for chip in sorted(Path(root).glob("hwmon*")) if contents(chip / "name") == DRIVER]
    devices: dict[str, Device] = {}
    missing: list[Missing] = []
    for chip in chips:
        # Kernels differ in whether the meter's files are in the hwmon device or in the device behind it.
        folder = next((each for each in (chip, chip / "device") if contents(each / "power1_oem_info")), None)
        match = WHOLE.fullmatch(contents(folder / "power1_oem_info")) if folder else None
        if folder is None or match is None:
            continue
        name, file = f"grace-{match[1]}", folder / "power1_average"
        try:
            int(file.read_text())
            devices[name] = Device("grace", "cpu", name, _reader(file))
        except (OSError, ValueError) as error:
            missing.append(Missing("cpu", name, f"Grace: {file}: {reason(error)}"))
    return Found(devices.values(), missing).checked(f"Grace: no meter in {root} is labelled as a Grace Power Socket")


def _reader(file: Path) -> Callable[[], Reading]:
    return lambda: Reading(power_w=int(file.read_text()) * MICRO)
