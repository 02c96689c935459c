"""Intel GPUs (Data Center GPU Max and Flex, Arc): the energy counters of the kernel's drivers ``xe`` and ``i915``.

Sources: the kernel's Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon and sysfs-driver-intel-i915-hwmon, and
drivers/gpu/drm/i915/i915_hwmon.c.

- ``i915``: ``energy1_input`` of the hwmon device ``i915`` is of the whole card. ``i915_gt0`` and so on are its tiles,
  which are not read.
- ``xe``: ``energy1_label`` is ``card``, ``energy2_label`` is ``pkg``, the chip, which is within the card. Older kernels
  have no labels and one counter. The card is read, else the chip.

All count microjoules. The driver extends a counter of 32 bits whenever it is read, so that it must be read about every
ten minutes; the sampler does. A GPU within a processor has no such files. GPUs are named by their PCI address.
"""

from collections.abc import Callable
from pathlib import Path

from study.core.cores import contents
from study.core.files import AnyPath
from study.instruments.power.readings import SENSORS, Counter, Device, Found, Missing, Reading, reason

ROOT = Path("/sys/class/hwmon")
DRIVERS = ("xe", "i915")
PREFERRED = ("card", "pkg", "")  # labels; the last: a counter without a label
MICRO = 1e-6


@SENSORS.register("intel_gpu")
def find(root: AnyPath = ROOT) -> Found:
    """One `Device` of kind ``gpu`` for each card; raises `Unavailable` if there is none that can be read."""
    devices: list[Device] = []
    missing: list[Missing] = []
    for chip in (each for each in sorted(Path(root).glob("hwmon*")) if contents(each / "name") in DRIVERS):
        name = (chip / "device").resolve().name
        counters = {contents(file.with_name(f"{file.stem[:-6]}_label")): file for file in chip.glob("energy*_input")}
        file = next((counters[label] for label in PREFERRED if label in counters), None)
        if file is None:
            missing.append(Missing("gpu", name, f"Intel GPU: {name}: {chip} has no energy counter of the card"))
            continue
        try:
            devices.append(Device("intel_gpu", "gpu", name, _reader(file)))
        except (OSError, ValueError) as error:
            missing.append(Missing("gpu", name, f"Intel GPU: {name}: {file.name}: {reason(error)}"))
    return Found(devices, missing).checked(f"Intel GPU: no device of the drivers xe or i915 in {root}")


def _reader(file: Path) -> Callable[[], Reading]:
    counter = Counter(lambda: int(file.read_text()), MICRO)
    return lambda: Reading(energy_j=counter.total())
