"""Cray XC and EX: the node's own counters in ``/sys/cray/pm_counters``, which PoLiMEr reads (icpp2019, section 3).

Each file begins with an integer, watts or joules. All are refreshed together, about ten times a second; ``freshness``
counts the refreshes.
"""

from pathlib import Path

from study.instruments.power.readings import Counter, Device, Reading, Unavailable

ROOT = Path("/sys/cray/pm_counters")
PREFIXES = {"": "node", "cpu_": "cpu", "memory_": "memory", "accel_": "gpu"}
TRIES = 3


def find(root=ROOT):
    """Node, CPU, memory and accelerators as a list of `Device`, as far as the node has them."""
    root = Path(root)
    if not (root / "energy").exists():
        raise Unavailable(f"Cray power counters: there is no {root}")
    return [_device(root, prefix, kind) for prefix, kind in PREFIXES.items() if (root / f"{prefix}energy").exists()]


def _device(root, prefix, kind):
    counter = Counter(lambda: _value(root / f"{prefix}energy"), 1)
    power = root / f"{prefix}power"

    def read():
        for _ in range(TRIES):  # power and energy of one refresh
            before = _value(root / "freshness")
            reading = Reading(
                power_w=_value(power) if power.exists() else None, energy_j=counter.total(), freshness=before
            )
            if _value(root / "freshness") == before:
                break
        return reading

    return Device("cray", kind, kind, read)


def _value(file):
    return int(file.read_text().split()[0])
