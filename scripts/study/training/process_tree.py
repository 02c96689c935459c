"""The descendants of a process, whatever their sessions and groups: their CPU time, their memory, and their end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from study.core.wording import describe_signal
from study.instruments.counters import read_peak_memory_mb

TICKS = os.sysconf("SC_CLK_TCK")
POLL_S = 0.02
LONGEST_LINE = 80  # characters of a command line in a message
MOST_HANDLES = 64  # of processes that a watch holds at once
ORDERED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # by which programs end their own helpers
# Of linux/pidfd.h, by which Linux 6.15 and later tell how a process ended, also one that its parent has waited for.
PIDFD_GET_INFO, INFO_EXIT, PIDFD_INFO = 0xC040FF0B, 1 << 3, struct.Struct("=2Q11Ii")


def _read_stat(process: str) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None for a process that is gone."""
    try:
        with open(f"/proc/{process}/stat", "rb") as handle:
            return handle.read().decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def list_descendants(root: int) -> set[int]:
    """The ids of all descendants of process ``root`` that have not ended."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  a Path of each of thousands of processes takes longer
        if name.isdigit() and (fields := _read_stat(name)) and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(name))
    descendants: set[int] = set()
    waiting = list(children.get(root, []))
    while waiting:
        process = waiting.pop()
        descendants.add(process)
        waiting += children.get(process, [])
    return descendants


def sum_cpu_s(processes: Iterable[int]) -> float:
    """CPU seconds of these processes and of their children that have ended."""
    stats = filter(None, (_read_stat(str(process)) for process in processes))
    return sum(sum(map(int, fields[11:15])) for fields in stats) / TICKS


def read_peak_mb(processes: Iterable[int]) -> float:
    """The largest peak memory (10^6 bytes) of these processes; 0 if there are none."""
    peaks_mb = (read_peak_memory_mb(Path(f"/proc/{process}/status")) for process in processes)
    return max((peak_mb for peak_mb in peaks_mb if peak_mb is not None), default=0.0)


@dataclass(frozen=True)
class Death:
    """The end of a process that its exit code tells as a failure. alive_s: when it was last seen alive (monotonic).

    how: in words. cpu_s: its own CPU time until then.
    """

    how: str
    cpu_s: float
    alive_s: float


class ChildWatch:
    """Watches the children and grandchildren of a process: which commands begin again, and which processes fail.

    again: the first command line that was started again after its end; "" without one. deaths: of processes that ended
    by a signal or with another exit code than 0, whatever their parents made of it; empty before Linux 6.15, which
    does not tell it. A process that begins and ends between two looks is not seen.
    """

    def __init__(self, process: int) -> None:
        self._process, self.again = process, ""
        self._running: dict[int, str] = {}
        self._ended: set[str] = set()
        self._handles: dict[int, int] = {}  # {process: its pidfd}
        self._cpu_s: dict[int, float] = {}
        self._looked_s = time.monotonic()
        self.deaths: list[Death] = []

    def look(self) -> None:
        """Look at the processes that run now."""
        children = _list_main_children(self._process)
        present = children | {each for child in children for each in _list_main_children(child)}
        for process in [each for each in self._handles if each not in present]:
            self._take_end(process)
        for process in [each for each in self._running if each not in present]:
            self._ended.add(self._running.pop(process))
        own = {read_command_line(self._process), *map(self._running.get, children)}
        for process in present:
            self._follow(process)
            line = self._running.get(process) or read_command_line(process)
            if process in self._running or line in own or line.startswith("process "):  # it has executed no program yet
                continue
            self._running[process] = line
            if line in self._ended:
                self.again = self.again or line
        self._looked_s = time.monotonic()

    def _follow(self, process: int) -> None:
        """Hold a process by its pidfd, and note its CPU time."""
        if process not in self._handles and len(self._handles) < MOST_HANDLES:
            with contextlib.suppress(OSError):
                self._handles[process] = os.pidfd_open(process)
        if fields := _read_stat(str(process)):
            self._cpu_s[process] = sum(map(int, fields[11:13])) / TICKS

    def _take_end(self, process: int) -> None:
        """Note how a process ended that is gone, if the kernel tells it."""
        handle, cpu_s = self._handles.pop(process), self._cpu_s.pop(process, 0.0)
        code = _read_exit_code(handle)
        os.close(handle)
        if code and -code not in ORDERED:
            line = " ".join(self._running.get(process, "a copy of its own process").split())[:LONGEST_LINE]
            how = f"was ended by {describe_signal(-code)}" if code < 0 else f"ended with exit code {code}"
            self.deaths.append(Death(f"a process of it {how} ({line})", cpu_s, self._looked_s))


def _read_exit_code(handle: int) -> int | None:
    """The exit code of the ended process of a pidfd, below 0 for a signal; None if the kernel does not tell it."""
    answer = bytearray(PIDFD_INFO.pack(INFO_EXIT, *[0] * 13))
    with contextlib.suppress(OSError):
        fcntl.ioctl(handle, PIDFD_GET_INFO, answer)
        mask, *_, status = PIDFD_INFO.unpack(answer)
        return os.waitstatus_to_exitcode(status) if mask & INFO_EXIT else None
    return None


def _list_main_children(process: int) -> set[int]:
    """The ids of the children that the first thread of a process started; none if the kernel does not list them."""
    with contextlib.suppress(OSError, ValueError):
        return set(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))
    return set()


def read_command_line(process: int) -> str:
    """The command line of a process, cut off after 200 characters; its number if it cannot be read."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        if words:
            return words[:200]
    return f"process {process}"


def reap_children(others: Collection[int], limit_s: float) -> float:
    """Wait for the killed children of this process, without ``others``; returns their CPU seconds.

    A process whose parent has ended is a child of this one (PR_SET_CHILD_SUBREAPER), and what it used is in no other
    process's count. At most ``limit_s`` seconds: one that hangs in a driver cannot be ended.
    """
    used_s, deadline = 0.0, time.monotonic() + limit_s
    while children := _list_children(os.getpid()).difference(others):
        for process in children:
            with contextlib.suppress(ChildProcessError):
                ended, _, usage = os.wait4(process, os.WNOHANG)
                used_s += usage.ru_utime + usage.ru_stime if ended else 0.0
        if time.monotonic() > deadline:
            break
        if children & _list_children(os.getpid()):
            time.sleep(POLL_S / 10)
    return used_s


def _list_children(parent: int) -> set[int]:
    """The ids of a process's children, including ended ones that it has not waited for."""
    names = (name for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  as above
    return {int(name) for name in names if (fields := _read_stat(name)) and int(fields[1]) == parent}


def count_memory_kills() -> int:
    """The number of processes that the kernel of this host has killed for lack of memory; 0 if it does not count them.

    Linux 4.13 and later: https://docs.kernel.org/filesystems/proc.html
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def signal_processes(processes: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to each process that still exists."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def end_tree(root: int, grace_s: float) -> None:
    """End a process and all its descendants: SIGTERM, and after ``grace_s`` seconds SIGKILL."""
    processes = {root, *list_descendants(root)}
    signal_processes(processes, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if not any((fields := _read_stat(str(process))) and fields[0] != "Z" for process in processes):
            return
        time.sleep(POLL_S)
    signal_processes(processes | list_descendants(root))
