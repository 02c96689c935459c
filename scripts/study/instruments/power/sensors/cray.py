"""Cray XC and EX: the node's counters in ``/sys/cray/pm_counters``, which PoLiMEr reads (icpp2019, section 3).

Each file begins with an integer, in watts or joules. All are updated together, about ten times a second; ``freshness``
counts the updates. XC has one file for all accelerators (``accel_energy``), EX one for each (``accel0_energy`` to
``accel3_energy``, as in published listings of such nodes). The node's counter includes all of them.
"""

import re
from pathlib import Path

from study.core.files import AnyPath
from study.instruments.power.readings import SENSORS, Counter, Device, Devices, Missing, Reading, Unavailable, to_words

ROOT = Path("/sys/cray/pm_counters")
NAME = re.compile(r"(?:(cpu|memory|accel)(\d*)_)?(?:energy|power)")
KINDS = {None: "node", "cpu": "cpu", "memory": "memory", "accel": "gpu"}
TRIES = 3


@SENSORS.register("cray")
def find(root: AnyPath = ROOT) -> Devices:
    """Node, CPU, memory and accelerators as a list of `Device`; only those that the node has."""
    root = Path(root)
    if not root.is_dir():
        raise Unavailable(f"Cray power counters: there is no {root}")
    devices, missing = [], []
    for kind, part in _list_parts(root):
        name = part.rstrip("_") if part.strip("_")[-1:].isdigit() else kind
        try:
            devices.append(_make_device(root, part, kind, name))
        except (OSError, ValueError) as error:
            missing.append(Missing(kind, name, f"Cray power counters: {name}: {to_words(error)}"))
    return Devices(devices, missing).require_any(f"Cray power counters: {root} has neither energy nor power")


def _list_parts(root: Path) -> list[tuple[str, str]]:
    """(kind, prefix of the files) of each device. Where devices of a kind have files of their own, only those.

    Then the one for all of them may be there too, and hold nothing but 0.
    """
    prefixes: dict[str, set[str]] = {kind: set() for kind in KINDS.values()}
    for path in root.iterdir():
        if match := NAME.fullmatch(path.name):
            prefixes[KINDS[match[1]]].add(f"{match[1]}{match[2]}_" if match[1] else "")
    whole = {f"{word}_" for word in KINDS if word}
    return [(kind, part) for kind, parts in prefixes.items() for part in sorted(parts - whole or parts)]


def _make_device(root: Path, part: str, kind: str, name: str) -> Device:
    """A device by those of its files that can be read; raises OSError without its counter and its power."""
    energy, power, freshness = root / f"{part}energy", root / f"{part}power", root / "freshness"
    failed: list[OSError] = []

    def can_read(file: Path) -> bool:
        try:
            return file.exists() and _read_value(file) is not None
        except OSError as error:
            failed.append(error)
            return False

    counter = Counter(lambda: _read_value(energy), 1) if can_read(energy) else None
    has_power, is_counted = can_read(power), can_read(freshness)
    if counter is None and not has_power:
        raise failed[0]

    def read() -> Reading:
        for _ in range(TRIES):  # until power and energy are of the same update
            before = _read_value(freshness) if is_counted else None
            reading = Reading(
                power_w=_read_value(power) if has_power else None,
                energy_j=counter.total() if counter else None,
                freshness=before,
            )
            if not is_counted or _read_value(freshness) == before:
                break
        return reading

    return Device("cray", kind, name, read)


def _read_value(file: Path) -> int:
    words = file.read_text().split()
    if not words:
        raise OSError(f"{file} is empty")
    try:
        return int(words[0])
    except ValueError:
        raise OSError(f"{file} begins with {words[0][:20]!r}, which is no integer") from None
