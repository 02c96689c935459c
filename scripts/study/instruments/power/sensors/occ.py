"""IBM POWER9: its on-chip controllers' sensors, through the kernel's hwmon drivers.

- ``ibmpowernv`` is the driver of the host (Linux, Documentation/hwmon/ibmpowernv.rst). The firmware makes its labels
  (skiboot, hw/occ-sensor.c): ``System``, ``Chip 0 `` for the processor of a socket, ``Chip 0 Memory``, ``Chip 0 GPU``
  for the GPUs of a socket. It has energy counters too.
- ``occ`` is the driver of the management controller (Documentation/hwmon/occ.rst, drivers/hwmon/occ/common.c). Its
  labels are ``system``, and from POWER9 on also ``4097_system``, ``4097_proc``, with the sensor's number.

Sensors nest, as RAPL's zones do: only those that stand for the whole node, a whole processor or its memory are read.
Each ``power*_input`` holds microwatts, each ``energy*_input`` microjoules.
"""

import re
from collections.abc import Callable
from pathlib import Path

from study.core.cores import read_or_empty
from study.core.files import AnyPath
from study.instruments.power.readings import SENSORS, Counter, Device, Devices, Missing, Reading, Unavailable, to_words

ROOT = Path("/sys/class/hwmon")
DRIVERS = ("ibmpowernv", "occ")
LABELS = {  # what stands for a whole device, without regard to case
    "node": re.compile(r"(\d+_)?system"),
    "cpu": re.compile(r"(\d+_)?proc|chip \d+"),
    "memory": re.compile(r"(\d+_)?mem|chip \d+ memory"),
    "gpu": re.compile(r"(\d+_)?gpu|chip \d+ gpu"),
}
MICRO = 1e-6


@SENSORS.register("occ")
def find(root: AnyPath = ROOT) -> Devices:
    """The labelled sensors of all chips as a list of `Device`; of the first driver that has any."""
    chips = [chip for chip in sorted(Path(root).glob("hwmon*")) if read_or_empty(chip / "name") in DRIVERS]
    if not chips:
        raise Unavailable(f"POWER9: no chip of {' or '.join(DRIVERS)} in {root}")
    devices = Devices()
    for driver in DRIVERS:
        devices = _find_on_chips([chip for chip in chips if read_or_empty(chip / "name") == driver])
        if devices:
            break
    return devices.require_any(f"POWER9: no sensor in {root} is labelled as a node, a processor or its memory")


def _find_on_chips(chips: list[Path]) -> Devices:
    """The devices of a driver. Controllers may tell the power of the whole node more than once: one is read."""
    devices: list[Device] = []
    missing: list[Missing] = []
    for (chip, kind, label), files in _list_labelled(chips).items():
        if kind == "node" and any(device.kind == "node" for device in devices):
            continue
        name = f"{chip.name}-{label}"
        try:
            devices.append(Device("occ", kind, name, _make_reader(files)))
        except (OSError, ValueError) as error:
            missing.append(Missing(kind, name, f"POWER9: {name}: {to_words(error)}"))
    if any(device.kind == "node" for device in devices):
        missing = [part for part in missing if part.kind != "node"]
    return Devices(devices, missing)


def _list_labelled(chips: list[Path]) -> dict[tuple[Path, str, str], dict[str, Path]]:
    """{(chip, kind, label): {"power" or "energy": its file}} of whole devices; plain labels first."""
    files: dict[tuple[Path, str, str], dict[str, Path]] = {}
    for chip in chips:
        for path in sorted(chip.glob("*_label"), key=lambda path: (len(path.name), path.name)):
            quantity, label = re.sub(r"\d+_label$", "", path.name), read_or_empty(path)
            kind = next((kind for kind, pattern in LABELS.items() if pattern.fullmatch(label.lower())), None)
            if kind and quantity in ("power", "energy"):
                files.setdefault((chip, kind, label), {})[quantity] = path.with_name(
                    path.stem[: -len("label")] + "input"
                )
    return dict(sorted(files.items(), key=lambda item: item[0][2][:1].isdigit()))


def _make_reader(files: dict[str, Path]) -> Callable[[], Reading]:
    """Reads a device; raises OSError or ValueError if neither its power nor its counter can be read now."""
    counter, power, failed = None, files.get("power"), None
    try:
        counter = Counter(lambda: int(files["energy"].read_text()), MICRO) if "energy" in files else None
    except (OSError, ValueError) as error:
        failed = error
    try:
        if power:
            int(power.read_text())
    except (OSError, ValueError) as error:
        power, failed = None, error
    if failed and not (power or counter):
        raise failed
    return lambda: Reading(
        power_w=int(power.read_text()) * MICRO if power else None, energy_j=counter.total() if counter else None
    )
