"""RAPL energy counters of Intel and AMD processors, through the kernel's powercap interface.

Zones nest: a package contains its cores, and psys contains everything. Only packages and their DRAM are read, so that
no joule is counted twice. There are two more ways in which one counter is listed twice:

- Two drivers, ``intel-rapl`` and ``intel-rapl-mmio``, list the same package. One of them is read.
- Each die has a zone, ``package-0-die-0`` and ``package-0-die-1``. On Intel (Cascade Lake AP) each die has its counter.
  On AMD the counter is of the package, and older kernels list it once for each die; newer ones do not
  (``rapl_msrs_are_pkg_scope`` in Linux, drivers/powercap/intel_rapl_common.c). The values decide, see `_Mirror`.

Usually only root can read the counters.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from study.core.files import AnyPath
from study.instruments.power.readings import SENSORS, Counter, Device, Devices, Missing, Reading, Unavailable, to_words

ROOT = Path("/sys/class/powercap")
DRIVER = "intel-rapl"  # by MSR or TPMI; preferred to intel-rapl-mmio
MICRO = 1e-6
PACKAGE = re.compile(r"package-\d+")
SAME_J = 1.0  # what is between two updates of a counter, 1 ms each, at far more than a package's power
LEAST_RANGE_J = 65_500.0  # 2^32 units of 15.3 uJ on AMD: no counter wraps sooner
MIRRORED_J = 100.0  # zones that rose together by as much are one counter


@dataclass(frozen=True)
class _Zone:
    """A package or its DRAM that can be read. package: the physical one. largest: of the counter, in uJ."""

    kind: str
    name: str
    package: str
    counter: Counter
    largest: int


@SENSORS.register("rapl")
def find(root: AnyPath = ROOT) -> Devices:
    """The zones that can be read as a list of `Device`; raises `Unavailable` with the reason if there is none."""
    paths = sorted(Path(root).glob(f"{DRIVER}*:*"), key=lambda path: (path.name.split(":")[0], path.name))
    if not paths:
        raise Unavailable(f"RAPL: no zones in {root}")
    read: dict[tuple[str, str], dict[str, list[_Zone | Missing]]] = {}  # by kind and package, and by driver
    for path in paths:
        kind, name, package = _identify(path)
        if kind is None:
            continue
        try:
            zone: _Zone | Missing = _read_zone(path, kind, name, package)
        except (OSError, ValueError) as error:
            zone = Missing(kind, name, f"RAPL: {name}: {_explain_error(path, error)}")
        read.setdefault((kind, package), {}).setdefault(path.name.split(":")[0], []).append(zone)
    devices, missing = [], []
    for drivers in read.values():
        parts = min(drivers.values(), key=lambda parts: sum(isinstance(part, Missing) for part in parts))
        devices += _make_devices([part for part in parts if isinstance(part, _Zone)])
        missing += [part for part in parts if isinstance(part, Missing)]
    return Devices(devices, missing).require_any(f"RAPL: the zones in {root} have neither a package nor DRAM")


def _identify(path: Path) -> tuple[str | None, str, str]:
    """(kind, name, physical package) of a zone; kind None if it is neither a package nor DRAM.

    A zone whose name cannot be read may be either: a package if it is in no other zone.
    """
    is_inner = path.name.count(":") > 1
    try:
        name = (path / "name").read_text().strip()
    except OSError:
        is_second = path.name.split(":")[0] != DRIVER  # its package is mostly one that the other driver lists
        return None if is_second else "memory" if is_inner else "cpu", path.name, path.name
    if name.startswith("package") and not is_inner:
        return "cpu", name, _parse_package(name)
    if name == "dram":
        parent = _read_parent(path)
        return "memory", f"{parent}-dram", _parse_package(parent)
    return None, name, name


def _parse_package(name: str) -> str:
    match = PACKAGE.match(name)
    return match.group() if match else name


def _read_parent(path: Path) -> str:
    """The name of the package that contains a DRAM zone: ``intel-rapl:0:2`` is in ``intel-rapl:0``."""
    parent = path.with_name(path.name.rsplit(":", 1)[0])
    try:
        return (parent / "name").read_text().strip()
    except OSError:
        return parent.name


def _read_zone(path: Path, kind: str, name: str, package: str) -> _Zone:
    file, largest = path / "energy_uj", int((path / "max_energy_range_uj").read_text())
    counter = Counter(lambda: int(file.read_text()), MICRO, largest)
    if not max(LEAST_RANGE_J / MICRO, counter.raw) <= largest:
        raise ValueError(f"max_energy_range_uj is {largest}: where its counter, {counter.raw} uJ now, wraps is unknown")
    return _Zone(kind, name, package, counter, largest)


def _explain_error(path: Path, error: Exception) -> str:
    """Why a zone cannot be read."""
    if isinstance(error, FileNotFoundError) and path.is_symlink() and not path.exists():
        return f"the link {path} leads nowhere, as in a container in which /sys is masked"
    file = getattr(error, "filename", None) or path / "energy_uj"
    if isinstance(error, FileNotFoundError) and Path(file).name == "max_energy_range_uj":
        return f"there is no {file}, so it is not known where its counter wraps"
    hint = " (usually only root may read it)" if isinstance(error, PermissionError) else ""
    return f"{file}: {to_words(error)}{hint}"


def _make_devices(zones: Sequence[_Zone]) -> list[Device]:
    """The devices of a physical package's zones of one kind: one for each counter."""
    first = [zone.counter.raw for zone in zones]
    for zone in zones:
        zone.counter.total()
    groups: list[list[int]] = []
    for place in range(len(zones)):
        near = (group for group in groups if _is_between(first[group[0]], first[place], zones[group[0]]))
        group = next(near, None)
        groups.append([place]) if group is None else group.append(place)
    devices: dict[str, Device] = {}
    for group in groups:
        of_group = [zones[place] for place in group]
        name = of_group[0].name
        if len(group) > 1 and len(groups) == 1:
            name = f"{of_group[0].package}-dram" if of_group[0].kind == "memory" else of_group[0].package
        name = name if name not in devices else f"{name}-{len(devices)}"
        devices[name] = Device("rapl", of_group[0].kind, name, _Mirror(of_group).read)
    return list(devices.values())


def _is_between(before: int, value: int, first: _Zone) -> bool:
    """Whether another zone's value is one that the first zone's counter had between its readings."""
    apart = _compute_signed(value - before, first.largest) * MICRO
    return -SAME_J <= apart <= _compute_signed(first.counter.raw - before, first.largest) * MICRO + SAME_J


def _compute_signed(difference: int, largest: int) -> int:
    """A difference of two values of a counter that wraps, of two moments that are near each other."""
    half = (largest + 1) // 2
    return (difference + half) % (largest + 1) - half


class _Mirror:
    """Zones of a package that had the same value at first, and are therefore taken for one counter; mostly one zone.

    Counters of their own have counted since the start of the host, so that two are mostly far apart. Where two are not,
    they part as soon as they move: then each counts. Zones that part only later contradict themselves: then there is no
    energy.
    """

    def __init__(self, zones: Sequence[_Zone]) -> None:
        self._zones, self._are_one, self._name = zones, True, " and ".join(zone.name for zone in zones)
        counters = [zone.counter for zone in zones]
        self._ahead = [  # of the first zone, when both were read for the first time
            _compute_signed(counter.raw - counters[0].raw, zones[0].largest) * MICRO
            - (counter.counted - counters[0].counted)
            for counter in counters
        ]

    def read(self) -> Reading:
        """The energy of the zones, each counter once."""
        totals = [zone.counter.total() for zone in self._zones]
        if len(totals) > 1 and self._are_one and self._has_parted(totals):
            if totals[0] > MIRRORED_J:
                raise OSError(f"RAPL: {self._name} moved as one counter, and then apart")
            self._are_one = False
        return Reading(energy_j=totals[0] if self._are_one else sum(totals))

    def _has_parted(self, totals: Iterable[float]) -> bool:
        """Whether a zone's value is none that the first zone had between its readings, before and after the others."""
        places = [total + ahead for total, ahead in zip(totals, self._ahead, strict=True)]
        after = self._zones[0].counter.total()
        return not all(places[0] - SAME_J <= place <= after + SAME_J for place in places)
