"""IBM POWER9: the power sensors of the on-chip controller, through the kernel's ``occ-hwmon``.

Every ``power*_input`` holds microwatts and has a label. Sensors nest, as RAPL's zones do: only those whose label stands
for the whole node, a whole processor or its memory are read.
"""

from pathlib import Path

from study.core.files import AnyPath
from study.instruments.power.readings import SENSORS, Device, Reading, Unavailable

ROOT = Path("/sys/class/hwmon")
LABELS = {"system": "node", "proc": "cpu", "mem": "memory", "gpu": "gpu"}
MICRO = 1e-6


@SENSORS.register("occ")
def find(root: AnyPath = ROOT) -> list[Device]:
    """The labelled sensors of all chips as a list of `Device`."""
    chips = [chip for chip in sorted(Path(root).glob("hwmon*")) if _text(chip / "name") == "occ"]
    if not chips:
        raise Unavailable(f"occ-hwmon: no chip in {root}")
    devices = [
        _device(chip, label, LABELS[_text(label).lower()])
        for chip in chips
        for label in sorted(chip.glob("power*_label"))
        if _text(label).lower() in LABELS
    ]
    if not devices:
        raise Unavailable(f"occ-hwmon: no sensor in {root} is labelled {', '.join(LABELS)}")
    return devices


def _device(chip: Path, label: Path, kind: str) -> Device:
    file = label.with_name(label.name.replace("_label", "_input"))
    return Device("occ", kind, f"{chip.name}-{_text(label)}", lambda: Reading(power_w=int(_text(file)) * MICRO))


def _text(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""
