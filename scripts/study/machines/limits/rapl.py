"""Power limit of each processor package: the long-term constraint of RAPL, through the kernel's powercap interface.

Source: Linux, Documentation/power/powercap/powercap.rst: a zone's ``constraint_N_name`` tells which constraint it is,
``constraint_N_power_limit_uw`` holds microwatts, ``constraint_N_max_power_uw`` the most (0 where the hardware does not
tell), ``enabled`` whether limits hold. A short-term constraint above the new limit is lowered to it, else the package
may still exceed it. AMD's processors have no constraints.
"""

from pathlib import Path

from study.machines.limits.base import Limit, Place, Refused, check_writable, contents, limit, number, store

MICRO = 1e-6
POWERCAP = "sys/class/powercap"
DRIVERS = ("intel-rapl", "intel-rapl-mmio")  # both list the same packages; the first that has any is used
LONG, SHORT = "long_term", "short_term"


@limit("cpu_power_limit_w")
class CpuPowerLimit(Limit):
    """The power limit of each package, in watts."""

    unit = "W"

    def devices(self, place: Place) -> list[str]:
        """The packages' zones, such as ``intel-rapl:0``."""
        folder = place.root / POWERCAP
        for driver in DRIVERS:
            zones = sorted(path for path in folder.glob(f"{driver}:*") if path.name.count(":") == 1)
            packages = [path.name for path in zones if contents(path / "name").startswith("package")]
            if packages:
                return packages
        raise Refused(f"RAPL: no package in {folder}")

    def check(self, place: Place, device: str, value: float) -> None:
        """The zone needs a long-term constraint that may be written, and the value must lie below its maximum."""
        zone = place.root / POWERCAP / device
        files = _constraints(zone)
        if LONG not in files:
            raise Refused(f"RAPL: {zone} has no long-term constraint; this processor cannot be limited")
        most = _most(files[LONG])
        if most and value / MICRO > most:
            raise Refused(f"{value:g} W on {device}: the processor allows at most {most * MICRO:g} W")
        for path in [*files.values(), zone / "enabled"]:
            check_writable(path)

    def current(self, place: Place, device: str) -> dict[str, int]:
        """{file: its number}, of the constraints and ``enabled``."""
        zone = place.root / POWERCAP / device
        return {path.name: number(path) for path in [*_constraints(zone).values(), zone / "enabled"]}

    def write(self, place: Place, device: str, value: float) -> None:
        """Watts."""
        zone, microwatts = place.root / POWERCAP / device, round(value / MICRO)
        files = _constraints(zone)
        if SHORT in files and number(files[SHORT]) > microwatts:
            store(files[SHORT], microwatts)
        store(files[LONG], microwatts)
        if number(zone / "enabled") != 1:
            store(zone / "enabled", 1)

    def read_back(self, place: Place, device: str) -> float | None:
        """Watts; None where limits do not hold."""
        zone = place.root / POWERCAP / device
        return number(_constraints(zone)[LONG]) * MICRO if number(zone / "enabled") == 1 else None

    def restore(self, place: Place, device: str, before: dict[str, int]) -> None:
        """All files that `current` read, each read back too."""
        zone = place.root / POWERCAP / device
        for name, value in before.items():
            if number(zone / name) != value:
                store(zone / name, value)
            if (found := number(zone / name)) != value:
                raise Refused(f"{zone / name}: is {found}, and was {value} before")


def _constraints(zone: Path) -> dict[str, Path]:
    """{name of a constraint: the file of its limit}."""
    found = {}
    for path in sorted(zone.glob("constraint_*_name")):
        limit = path.with_name(path.name.replace("_name", "_power_limit_uw"))
        if contents(path) in (LONG, SHORT) and limit.exists():
            found[contents(path)] = limit
    return found


def _most(limit: Path) -> int | None:
    """The most that a constraint can have, in microwatts; None where the hardware does not tell."""
    path = limit.with_name(limit.name.replace("_power_limit_uw", "_max_power_uw"))
    try:
        return number(path) or None
    except Refused:  # some zones have the file, and cannot read it
        return None
