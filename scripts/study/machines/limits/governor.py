"""The governor of the processors' clock rate: ``scaling_governor`` of each CPU.

Source: Linux, Documentation/admin-guide/pm/cpufreq.rst.
"""

from pathlib import Path

from study.core.wording import counted
from study.machines.limits.base import Limit, Place, Refused, check_writable, contents, limit, store

CPUS = "sys/devices/system/cpu"
UNCHANGED = "unchanged"


@limit("cpu_governor")
class CpuGovernor(Limit):
    """The governor of all CPUs of the host: its settings belong together, so they are one device."""

    off = UNCHANGED

    def devices(self, place: Place) -> list[str]:
        """One, for all CPUs; raises `Refused` if the kernel scales no clock rate, as in most virtual machines."""
        if not _files(place):
            raise Refused(f"the kernel has no cpufreq in {place.root / CPUS}, as in most virtual machines")
        return ["all CPUs"]

    def check(self, place: Place, device: str, value: str) -> None:
        """Every CPU must offer the governor, and its file must be writable."""
        for path in _files(place).values():
            offered = contents(path.with_name("scaling_available_governors")).split()
            if value not in offered:
                raise Refused(f"{value}: {path.parent} offers {', '.join(offered) or 'none'}")
            check_writable(path)

    def current(self, place: Place, device: str) -> dict[str, str]:
        """{CPU: its governor}."""
        return {cpu: contents(path) for cpu, path in _files(place).items()}

    def write(self, place: Place, device: str, value: str) -> None:
        """The same for all CPUs."""
        for path in _files(place).values():
            store(path, value)

    def read_back(self, place: Place, device: str) -> str:
        """The governor; where CPUs differ, all of them."""
        return ", ".join(sorted(set(self.current(place, device).values())))

    def restore(self, place: Place, device: str, before: dict[str, str]) -> None:
        """Each CPU's own, read back too; a CPU that went offline has none."""
        files = _files(place)
        for cpu, value in before.items():
            if cpu in files and contents(files[cpu]) != value:
                store(files[cpu], value)
        wrong = [cpu for cpu, value in before.items() if cpu in files and contents(files[cpu]) != value]
        if wrong:
            raise Refused(f"the governor of {counted(len(wrong), 'CPU')} is not what it was before")


def _files(place: Place) -> dict[str, Path]:
    """{CPU: the file of its governor}, of the CPUs that are online."""
    paths = sorted((place.root / CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor"))
    return {path.parent.parent.name: path for path in paths}
