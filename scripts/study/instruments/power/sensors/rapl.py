"""RAPL energy counters of Intel and AMD processors, through the kernel's powercap interface.

Zones nest: a package contains its cores, and psys contains everything. Only packages and their DRAM are read, so that
no joule is counted twice. Usually only root can read the counters.
"""

from pathlib import Path

from study.core.files import AnyPath
from study.instruments.power.readings import SENSORS, Counter, Device, Reading, Unavailable

ROOT = Path("/sys/class/powercap")
MICRO = 1e-6


@SENSORS.register("rapl")
def find(root: AnyPath = ROOT) -> list[Device]:
    """The readable zones as a list of `Device`; raises `Unavailable` with the reason if there is none."""
    zones = sorted(Path(root).glob("intel-rapl:*"))
    if not zones:
        raise Unavailable(f"RAPL: no zones in {root}")
    devices = [device for zone in zones if (device := _device(zone))]
    if not devices:
        raise Unavailable(f"RAPL: the zones in {root} have neither a package nor DRAM")
    return devices


def _device(zone: Path) -> Device | None:
    name = (zone / "name").read_text().strip()
    kind = "cpu" if name.startswith("package") else "memory" if name == "dram" else None
    if kind is None:
        return None
    file, largest = zone / "energy_uj", int((zone / "max_energy_range_uj").read_text())
    try:
        counter = Counter(lambda: int(file.read_text()), MICRO, largest)
    except OSError as error:
        raise Unavailable(f"RAPL: {file}: {error.strerror} (usually only root may read it)") from None
    label = name if kind == "cpu" else f"{_package(zone)}-dram"
    return Device("rapl", kind, label, lambda: Reading(energy_j=counter.total()))


def _package(zone: Path) -> str:
    """The name of the package that contains a DRAM zone: ``intel-rapl:0:2`` is in ``intel-rapl:0``."""
    parent = zone.with_name(zone.name.rsplit(":", 1)[0])
    return (parent / "name").read_text().strip() if (parent / "name").exists() else parent.name
