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
    """A process that is kept on some cores. before_s: CPU time that it had used until then."""

    cores: frozenset[int]
    before_s: float


limited: Limited | None = None  # this process, once `limit` has kept it on some cores
usable_at_start: float | None = None  # `usable` of this process before `limit` and before threads were bound


def limit(variables: Mapping[str, str] = os.environ) -> None:
    """Keep this process, and threads and processes that it starts later, on the first cores that it may use.

    The number is in the environment; without it, no core is withheld. With fewer cores than that, their hyper-threads
    count too; with fewer of those, all of them stay.
    """
    global limited, usable_at_start
    usable_at_start = usable()
    number = int(variables.get(VARIABLE, 0))
    if number:
        cores = by_core(number)[:number]
        os.sched_setaffinity(0, cores)
        limited = Limited(frozenset(cores), time.process_time())


def use_all() -> None:
    """Let this process use all logical CPUs that its control group allows, whatever its parent was bound to.

    Launchers bind a rank to some cores of its node (jsrun, aprun, srun), which a process that it starts inherits.
    """
    with contextlib.suppress(OSError):  # the kernel leaves out those outside of the cpuset
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))


def allowed() -> list[int]:
    """The logical CPUs that this process may use, ascending: its affinity, which is within its cpuset."""
    return sorted(os.sched_getaffinity(0))


def by_core(number: int, root: Path = ROOT) -> list[int]:
    """The `allowed` logical CPUs in the order in which ``number`` of them are given away.

    If there are as many physical cores, one of each core: on many hosts CPUs 0 and 1 are two hyper-threads of one core.
    Else all of them, hyper-threads of one core together.
    """
    of_core = grouped(allowed(), root)
    if number <= len(of_core):
        return [cpus[0] for cpus in of_core]
    return [cpu for cpus in of_core for cpu in cpus]


def grouped(cpus: Iterable[int], root: Path = ROOT) -> list[list[int]]:
    """Logical CPUs by the core whose hyper-threads they are; each alone where the kernel does not say."""
    of_core: dict[str, list[int]] = {}
    for cpu in cpus:
        of_core.setdefault(_siblings(cpu, root) or str(cpu), []).append(cpu)
    return list(of_core.values())


def with_siblings(cpus: Iterable[int], root: Path = ROOT) -> frozenset[int]:
    """Logical CPUs and the other hyper-threads of their cores, also those that this process may not use."""
    return frozenset(each for cpu in cpus for each in (cpu, *listed(_siblings(cpu, root))))


def of_process(pid: int, root: Path = ROOT) -> frozenset[int]:
    """The logical CPUs that some thread of a process may use; none of a process that has ended."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(root / f"proc/{pid}/task"):  # noqa: PTH208  hundreds of names
            with contextlib.suppress(OSError):  # it has ended
                found |= os.sched_getaffinity(int(thread))
    return frozenset(found)


def listed(text: str) -> list[int]:
    """The numbers of Linux's list format, such as ``0-3,8``."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]


@functools.cache
def counts_of_kernel(root: Path = ROOT) -> bool:
    """Whether /proc/stat is the kernel's own, and no other file that is mounted there.

    In containers of LXC, Incus and LXD, and in some of Kubernetes, it is lxcfs's. That numbers the container's CPUs
    from 0, whatever the kernel calls them, and may count what the container has used only.
    """
    mounts = (line.split() for line in contents(root / "proc/self/mountinfo").splitlines())
    return not any(len(fields) > 4 and _unescaped(fields[4]) == "/proc/stat" for fields in mounts)


@functools.cache
def _siblings(cpu: int, root: Path) -> str:
    """The logical CPUs of one core, as the kernel lists them, read once; empty where it does not say."""
    return contents(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")


def physical(root: Path = ROOT) -> int | None:
    """The number of cores to which the `allowed` logical CPUs belong; None where the kernel does not say.

    Two hyper-threads of one core share its units, so they are one core.
    """
    siblings = {_siblings(cpu, root) for cpu in allowed()}
    return None if "" in siblings else len(siblings)


def quota(root: Path = ROOT) -> float | None:
    """The CPU time, in cores, that control groups allow this process; None without a limit.

    It is the smallest limit of its group and of all groups above it, of both versions.
    """
    return min((share for folder in groups("cpu", root) if (share := _share(folder)) is not None), default=None)


def usable(root: Path = ROOT) -> float:
    """The cores whose time this process can have: the `physical` ones, else the `allowed`, but at most its `quota`."""
    number = physical(root) or len(allowed())
    most = quota(root)
    return number if most is None else min(number, most)


def threads(root: Path = ROOT) -> int:
    """How many threads can work at once: one for each `allowed` logical CPU, within the `quota`; at least one."""
    most = quota(root)
    return len(allowed()) if most is None else max(1, min(len(allowed()), int(most)))


def memory_bytes(root: Path = ROOT) -> int:
    """The host's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The memory that control groups allow this process, the smallest limit of them all; None without a limit."""
    limits = (_bytes(folder) for folder in groups("memory", root))
    found = min((each for each in limits if each is not None), default=None)
    return found if found is not None and found < memory_bytes() else None


def facts(root: Path = ROOT) -> dict[str, int | float | None]:
    """All of these of this host, for the provenance of a run."""
    most = memory_limit_bytes(root)
    return {
        "cores": os.cpu_count() or len(allowed()),
        "cores_allowed": len(allowed()),
        "physical_cores_allowed": physical(root),
        "cpu_quota_cores": quota(root),
        "memory_mb": memory_bytes() / 1e6,
        "memory_limit_mb": None if most is None else most / 1e6,
    }


def worth(host: Mapping[str, Any]) -> float:
    """As `usable`, from a host's `facts`."""
    number: int = host["physical_cores_allowed"] or host["cores_allowed"]
    most: float | None = host["cpu_quota_cores"]
    return number if most is None else min(number, most)


def _share(folder: Path) -> float | None:
    """A group's limit of CPU time, in cores; None without one."""
    if text := contents(folder / "cpu.max"):  # version 2: "50000 100000" or "max 100000"
        most, _, period = text.partition(" ")
        return int(most) / int(period or 100_000) if most.isdigit() else None
    most, period = contents(folder / "cpu.cfs_quota_us"), contents(folder / "cpu.cfs_period_us")
    return int(most) / int(period) if most.isdigit() and period.isdigit() and int(period) else None


def _bytes(folder: Path) -> int | None:
    """A group's limit of memory; None without one. Above ``memory.high`` the kernel slows its processes down."""
    texts = (contents(folder / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes"))
    return min((int(text) for text in texts if text.isdigit() and int(text) < UNLIMITED_BYTES), default=None)


def groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folder of each control group of this process that has the controller, and of all groups above it.

    Of the mount's root in /proc/self/mountinfo and the group's path in /proc/self/cgroup, a container may see either
    one as the host does: where the path is not below the mount, the mount itself is the group.
    """
    paths: dict[str, str] = {}
    for line in contents(root / "proc/self/cgroup").splitlines():
        _, names, path = (line.split(":", 2) + ["", ""])[:3]
        paths |= dict.fromkeys(names.split(","), path)
    for line in contents(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        name = controller if kind[0] == "cgroup" else ""
        if name not in paths or (name and name not in kind[2].split(",")):
            continue
        mount = root / _unescaped(fields[4]).lstrip("/")
        group = mount / _below(paths[name], _unescaped(fields[3]))
        while group != mount and not group.is_dir():  # another's view of the path, or a group that was removed
            group = group.parent
        yield from (each for each in (group, *group.parents) if each.is_relative_to(mount))


def _below(path: str, mounted: str) -> str:
    """A group's path below the mount of the group ``mounted``; ``.`` if it is outside of it."""
    inside = os.path.relpath(path, mounted)
    return "." if inside.split("/")[0] == ".." else inside


def _unescaped(text: str) -> str:
    """A path of mountinfo, in which blanks and the like are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def contents(path: Path) -> str:
    """The text in a file of /proc or /sys; empty if it is not there or cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
