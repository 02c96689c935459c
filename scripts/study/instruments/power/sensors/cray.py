"""Cray XC and EX: the node's counters in ``/sys/cray/pm_counters``, which PoLiMEr reads (icpp2019, section 3).

Each file begins with an integer, in watts or joules. All are updated together, about ten times a second; ``freshness``
counts the updates.
"""

from pathlib import Path

from study.core.files import AnyPath
from study.instruments.power.readings import SENSORS, Counter, Device, Reading, Unavailable

ROOT = Path("/sys/cray/pm_counters")
PREFIXES = {"": "node", "cpu_": "cpu", "memory_": "memory", "accel_": "gpu"}
TRIES = 3


@SENSORS.register("cray")
def find(root: AnyPath = ROOT) -> list[Device]:
    """Node, CPU, memory and accelerators as a list of `Device`; only those that the node has."""
    root = Path(root)
    if not (root / "energy").exists():
        raise Unavailable(f"Cray power counters: there is no {root}")
    return [_device(root, prefix, kind) for prefix, kind in PREFIXES.items() if (root / f"{prefix}energy").exists()]


def _device(root: Path, prefix: str, kind: str) -> Device:
    counter = Counter(lambda: _value(root / f"{prefix}energy"), 1)
    power = root / f"{prefix}power"

    def read() -> Reading:
        for _ in range(TRIES):  # until power and energy are of the same update
            before = _value(root / "freshness")
            reading = Reading(
                power_w=_value(power) if power.exists() else None, energy_j=counter.total(), freshness=before
            )
            if _value(root / "freshness") == before:
                break
        return reading

    return Device("cray", kind, kind, read)


def _value(file: Path) -> int:
    words = file.read_text().split()
    if not words:
        raise OSError(f"{file} is empty")
    return int(words[0])
