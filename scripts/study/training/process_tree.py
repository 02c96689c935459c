"""The processes below one, wherever their sessions and groups are: their time, their memory, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.02


def _stat(process: str) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None for a process that is gone."""
    try:
        with open(f"/proc/{process}/stat", "rb") as handle:
            return handle.read().decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def below(root: int) -> set[int]:
    """The ids of all processes below ``root``, without those that have ended."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  a Path of each of thousands of processes takes longer
        if name.isdigit() and (fields := _stat(name)) and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(name))
    found: set[int] = set()
    left = list(children.get(root, []))
    while left:
        process = left.pop()
        found.add(process)
        left += children.get(process, [])
    return found


def cpu_s(processes: Iterable[int]) -> float:
    """Processor seconds of these and of their children that have ended."""
    stats = filter(None, (_stat(str(process)) for process in processes))
    return sum(sum(map(int, fields[11:15])) for fields in stats) / TICKS


def peak_mb(processes: Iterable[int]) -> float:
    """The largest memory (10^6 bytes) that one of them has had; 0 without one."""
    found = [0.0]
    for process in processes:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    found.append(int(line.split()[1]) * 1024 / 1e6)
    return max(found)


def waited_cpu_s(others: Collection[int], limit_s: float) -> float:
    """Wait for this process's children, without ``others``, that have been ended; returns their processor seconds.

    A process whose parent has ended is a child of this one (PR_SET_CHILD_SUBREAPER), and what it used is in no other
    process's count. At most ``limit_s`` seconds: one that hangs in a driver cannot be ended.
    """
    used_s, deadline = 0.0, time.monotonic() + limit_s
    while left := _children(os.getpid()).difference(others):
        for process in left:
            with contextlib.suppress(ChildProcessError):
                ended, _, usage = os.wait4(process, os.WNOHANG)
                used_s += usage.ru_utime + usage.ru_stime if ended else 0.0
        if time.monotonic() > deadline:
            break
        if left & _children(os.getpid()):
            time.sleep(LOOK_S / 10)
    return used_s


def _children(parent: int) -> set[int]:
    """The ids of a process's children, with those that have ended and that it has not waited for."""
    names = (name for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  as above
    return {int(name) for name in names if (fields := _stat(name)) and int(fields[1]) == parent}


def killed_for_memory() -> int:
    """Processes of this host that the kernel has ended for want of memory, its own or a group's; 0 if it counts none.

    Linux 4.13 and later: https://docs.kernel.org/filesystems/proc.html
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def kill(processes: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to each."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def end(root: int, grace_s: float) -> None:
    """End a process and all below it: SIGTERM, and SIGKILL for what is left after ``grace_s`` seconds."""
    processes = {root, *below(root)}
    kill(processes, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if not any((fields := _stat(str(process))) and fields[0] != "Z" for process in processes):
            return
        time.sleep(LOOK_S)
    kill(processes | below(root))
