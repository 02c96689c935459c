"""The cores and the memory that a process may use: what the host has, less what affinity and control groups withhold.

A process on eight cores may be allowed the CPU time of half a core (a container's ``--cpus 0.5``). So every number of
threads or processes, and the check for oversubscription, comes from here and never from `os.cpu_count`.

Sources: sched_setaffinity(2) (the affinity is already within the cpuset of the control group); the kernel's
Documentation/admin-guide/cgroup-v2.rst (``cpu.max``, ``memory.max``, ``memory.high``),
Documentation/scheduler/sched-bwc.rst (``cpu.cfs_quota_us``), Documentation/admin-guide/cgroup-v1/memory.rst,
Documentation/admin-guide/cputopology.rst (``thread_siblings_list``), cgroups(7) and proc_pid_mountinfo(5); of lxcfs
``proc_stat_read`` in its src/proc_fuse.c.

Imports nothing of the study, so that a rank can call it before its other imports, whose processor time counts too, and
so that `study.machines.probe` can load it by its path on another host.
"""

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "STUDY_CORE_LIMIT"
ROOT = Path("/")  # below which /proc and /sys are read; tests have others
UNLIMITED_BYTES = 1 << 60  # version 1 of control groups writes a huge number for "no limit"


class Limited(NamedTuple):
    """The cores to which this process is limited. before_s: CPU time that it had used until then."""

    cores: frozenset[int]
    before_s: float


limited: Limited | None = None  # this process, once `limit_cores` has kept it on some cores
usable_at_start: float | None = (
    None  # `count_usable_cores` of this process before `limit_cores` and before threads were bound
)


def limit_cores(variables: Mapping[str, str] = os.environ) -> None:
    """Bind this process, and what it starts later, to the first cores that it may use.

    The number is in the environment; without it, no core is withheld. With fewer cores than that, their hyper-threads
    count too; with fewer of those, all of them stay.
    """
    global limited, usable_at_start
    usable_at_start = count_usable_cores()
    number = int(variables.get(VARIABLE, 0))
    if number:
        cores = order_cpus_by_core(number)[:number]
        os.sched_setaffinity(0, cores)
        limited = Limited(frozenset(cores), time.process_time())


def use_all_cores() -> None:
    """Bind this process to all logical CPUs that its control group allows, whatever its parent was bound to.

    Launchers bind a rank to some cores of its node (jsrun, aprun, srun), which a process that it starts inherits.
    """
    with contextlib.suppress(OSError):  # the kernel leaves out those outside of the cpuset
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))


def list_allowed_cpus() -> list[int]:
    """Logical CPUs that this process may use, ascending: its affinity, which is within its cpuset."""
    return sorted(os.sched_getaffinity(0))


def order_cpus_by_core(number: int, root: Path = ROOT) -> list[int]:
    """Allowed logical CPUs in the order in which ``number`` of them are given away.

    If there are as many physical cores, one of each core: on many hosts CPUs 0 and 1 are two hyper-threads of one core.
    Else all of them, hyper-threads of one core together.
    """
    cores = group_by_core(list_allowed_cpus(), root)
    if number <= len(cores):
        return [cpus[0] for cpus in cores]
    return [cpu for cpus in cores for cpu in cpus]


def group_by_core(cpus: Iterable[int], root: Path = ROOT) -> list[list[int]]:
    """Logical CPUs grouped by physical core; each alone where the kernel does not tell."""
    cpus_by_core: dict[str, list[int]] = {}
    for cpu in cpus:
        cpus_by_core.setdefault(_read_siblings(cpu, root) or str(cpu), []).append(cpu)
    return list(cpus_by_core.values())


def add_siblings(cpus: Iterable[int], root: Path = ROOT) -> frozenset[int]:
    """Logical CPUs and all hyper-threads of their cores, also those that this process may not use."""
    return frozenset(each for cpu in cpus for each in (cpu, *parse_cpu_list(_read_siblings(cpu, root))))


def read_cpus_of_process(pid: int, root: Path = ROOT) -> frozenset[int]:
    """Logical CPUs that any thread of a process may use; empty if it has ended."""
    cpus: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(root / f"proc/{pid}/task"):  # noqa: PTH208  hundreds of names
            with contextlib.suppress(OSError):  # it has ended
                cpus |= os.sched_getaffinity(int(thread))
    return frozenset(cpus)


def parse_cpu_list(text: str) -> list[int]:
    """The numbers in a text of Linux's list format, such as ``0-3,8``."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]


@functools.cache
def has_kernel_counts(root: Path = ROOT) -> bool:
    """True if /proc/stat is the kernel's own, not another file mounted there.

    In containers of LXC, Incus and LXD, and in some of Kubernetes, it is lxcfs's. That numbers the container's CPUs
    from 0, whatever the kernel calls them, and may count what the container has used only.
    """
    mounts = (line.split() for line in read_or_empty(root / "proc/self/mountinfo").splitlines())
    return not any(len(fields) > 4 and _unescape(fields[4]) == "/proc/stat" for fields in mounts)


@functools.cache
def _read_siblings(cpu: int, root: Path) -> str:
    """The kernel's list of a core's logical CPUs, cached; empty where it does not tell."""
    return read_or_empty(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")


def count_physical_cores(root: Path = ROOT) -> int | None:
    """Number of physical cores of the allowed logical CPUs; None where the kernel does not tell.

    Two hyper-threads of one core share its units, so they are one core.
    """
    siblings = {_read_siblings(cpu, root) for cpu in list_allowed_cpus()}
    return None if "" in siblings else len(siblings)


def read_cpu_quota(root: Path = ROOT) -> float | None:
    """CPU time, in cores, that control groups allow this process; None without a limit.

    It is the smallest limit of its group and of all groups above it, of both versions.
    """
    return min(
        (share for folder in find_control_groups("cpu", root) if (share := _read_cpu_limit(folder)) is not None),
        default=None,
    )


def count_usable_cores(root: Path = ROOT) -> float:
    """Cores whose time this process can have: physical ones, else logical CPUs, at most the CPU quota."""
    number = count_physical_cores(root) or len(list_allowed_cpus())
    most = read_cpu_quota(root)
    return number if most is None else min(number, most)


def count_threads(root: Path = ROOT) -> int:
    """Number of threads that can work at once: the allowed logical CPUs, at most the CPU quota; at least 1."""
    most = read_cpu_quota(root)
    return len(list_allowed_cpus()) if most is None else max(1, min(len(list_allowed_cpus()), int(most)))


def read_memory_bytes(root: Path = ROOT) -> int:
    """The host's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def read_memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The smallest memory limit of this process's control groups, bytes; None without one."""
    limits = (_read_memory_limit(folder) for folder in find_control_groups("memory", root))
    smallest = min((each for each in limits if each is not None), default=None)
    return smallest if smallest is not None and smallest < read_memory_bytes() else None


def describe_host(root: Path = ROOT) -> dict[str, int | float | None]:
    """Cores, quota and memory of this host by name, for a run's provenance."""
    most = read_memory_limit_bytes(root)
    return {
        "cores": os.cpu_count() or len(list_allowed_cpus()),
        "cores_allowed": len(list_allowed_cpus()),
        "physical_cores_allowed": count_physical_cores(root),
        "cpu_quota_cores": read_cpu_quota(root),
        "memory_mb": read_memory_bytes() / 1e6,
        "memory_limit_mb": None if most is None else most / 1e6,
    }


def compute_usable_cores(host: Mapping[str, Any]) -> float:
    """Usable cores, as `count_usable_cores`, from a host's stored description."""
    number: int = host["physical_cores_allowed"] or host["cores_allowed"]
    most: float | None = host["cpu_quota_cores"]
    return number if most is None else min(number, most)


def _read_cpu_limit(folder: Path) -> float | None:
    """A control group's limit of CPU time, in cores; None without one."""
    if text := read_or_empty(folder / "cpu.max"):  # version 2: "50000 100000" or "max 100000"
        most, _, period = text.partition(" ")
        return int(most) / int(period or 100_000) if most.isdigit() else None
    most, period = read_or_empty(folder / "cpu.cfs_quota_us"), read_or_empty(folder / "cpu.cfs_period_us")
    return int(most) / int(period) if most.isdigit() and period.isdigit() and int(period) else None


def _read_memory_limit(folder: Path) -> int | None:
    """A control group's memory limit, bytes; None without one. The kernel slows processes above ``memory.high``."""
    texts = (read_or_empty(folder / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes"))
    return min((int(text) for text in texts if text.isdigit() and int(text) < UNLIMITED_BYTES), default=None)


def find_control_groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Folders of this process's control groups that have the controller, and of all groups above them.

    Of the mount's root in /proc/self/mountinfo and the group's path in /proc/self/cgroup, a container may see either
    one as the host does: where the path is not below the mount, the mount itself is the group.
    """
    paths: dict[str, str] = {}
    for line in read_or_empty(root / "proc/self/cgroup").splitlines():
        _, names, path = (line.split(":", 2) + ["", ""])[:3]
        paths |= dict.fromkeys(names.split(","), path)
    for line in read_or_empty(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        name = controller if kind[0] == "cgroup" else ""
        if name not in paths or (name and name not in kind[2].split(",")):
            continue
        mount = root / _unescape(fields[4]).lstrip("/")
        group = mount / _locate_below(paths[name], _unescape(fields[3]))
        while group != mount and not group.is_dir():  # another's view of the path, or a group that was removed
            group = group.parent
        yield from (each for each in (group, *group.parents) if each.is_relative_to(mount))


def _locate_below(path: str, mounted: str) -> str:
    """A control group's path relative to the mounted group; ``.`` if it is outside it."""
    inside = os.path.relpath(path, mounted)
    return "." if inside.split("/")[0] == ".." else inside


def _unescape(text: str) -> str:
    """A path of mountinfo with its octal escapes replaced by characters."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def read_or_empty(path: Path) -> str:
    """The text of a file of /proc or /sys; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
