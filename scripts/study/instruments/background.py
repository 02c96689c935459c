"""Other load of a run's host: other processes, the hypervisor, limits of control groups, swapping.

The sampler of the host makes a row from time to time. Processor time is that of the cores that the run may use. Without
a separate counter, time of others is what was busy, less the run's own processes and the kernel's threads. A process
counts where it ran last, since the kernel does not tell how its time is divided over cores.

Where ranks have cores of their own, a row is of one rank's: those of which others have taken the most until then (see
`study.instruments.host_processes`). Others on the other hyper-threads of these cores count too.

Sources: proc_stat(5), proc_pid_stat(5), proc_vmstat(5); the kernel's Documentation/accounting/psi.rst,
Documentation/admin-guide/cgroup-v2.rst (``cpu.stat``) and Documentation/scheduler/sched-bwc.rst; of ``throttled_time``
kernel/sched/fair.c, of ``scaling_cur_freq`` arch/x86/kernel/cpu/aperfmperf.c before Linux 5.18.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from study.core import cores
from study.instruments import host_processes
from study.instruments.counters import TICKS_OFF_S, compute_increase
from study.instruments.host_processes import SERVING, TICKS, Cpus, Process, RankCores

VARIABLE = "STUDY_RUN"  # in the environment of each process of a run: the run's directory
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
NUMBERS = 8  # of a core's line in /proc/stat that are read
NAMED_CORES = 0.02  # from which a process is named
SETTLED_S = 10.0  # after its start, a process does not become another program with another environment
CLOCK_S = 0.02  # for reading clock rates: each may take 10 ms
MOST_MHZ = 20_000  # of a core's clock rate
# {counter: by how much it can rise in a second, at most}; of processor time in all CPUs of the host, see `_find_most`.
MOST_PER_S = {"swapped_mb": 1e5, "memory_stalled_s": 1.0, "io_stalled_s": 1.0, "major_faults": 1e7,
              "thermal_throttles": 1e6}  # fmt: skip

# Columns of the file. Seconds of processor time, unless the name says otherwise; empty where the host does not tell it.
TIMES = ("own_cpu_s", "others_cpu_s", "kernel_cpu_s", "steal_s", "throttled_s")
COUNTED = (*TIMES, "swapped_mb", "memory_stalled_s", "io_stalled_s", "major_faults", "thermal_throttles")
STOOD_STILL = "stood_still_s"  # of the run or of the sampler
TEXTS_OF_GPUS = ("gpu_reason", "gpu_users")
DOUBTFUL = "doubtful"  # names of counters of which the host told what cannot be
OF_GPUS = ("gpu_slowed_s", "gpu_capped_s", "gpu_shared_s", "gpu_clock_mhz", *TEXTS_OF_GPUS)
COLUMNS = ("end_wall_ns", "end_monotonic_ns", "host", "seconds", "cores", *COUNTED, "clock_mhz", "busiest", *OF_GPUS,
           STOOD_STILL, DOUBTFUL)  # fmt: skip


def can_measure_other_load(root: Path = cores.ROOT) -> bool:
    """True if /proc/stat has per-CPU busy times; without them, load by other processes is unknown."""
    if not cores.has_kernel_counts(root):
        return False
    try:
        lines = (root / "proc/stat").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return False
    times = {name: numbers for name, *numbers in map(str.split, filter(str.strip, lines))}
    return all(_has_counts(times.get(f"cpu{core}", [])) for core in cores.list_allowed_cpus())


class _Times(NamedTuple):
    """Seconds of one logical CPU up to now. busy: interrupts left out. steal: what the hypervisor took."""

    busy: float
    steal: float


class Background:
    """Reads the counters of this host, and by how much they have changed.

    Args:
        run: the value of `VARIABLE` in the run's processes.
        launcher: the id of a process that is the run's too.
        root: below which /proc and /sys are read; tests have others.
        clock: monotonic seconds.

    Attributes:
        at: the moment of the last reading, by the clock.
    """

    def __init__(
        self,
        run: str,
        launcher: int | None = None,
        root: Path = cores.ROOT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root, self._clock, self._mark = root, clock, f"{VARIABLE}={run}".encode()
        self._cores = self._of_row = frozenset(
            cores.list_allowed_cpus()
        )  # all that are watched, and those of the last row
        self._ranks = RankCores(root)
        self._groups = [each for each in cores.find_control_groups("cpu", root) if (each / "cpu.stat").exists()]
        self._is_own: dict[tuple[int, int], bool] = {}  # by process id and start
        self._unsettled: set[tuple[int, int]] = set()  # of these, those to be looked at again
        self._marked: set[tuple[int, int]] = set()  # of the run's, those with its mark in their environment
        self._processes: dict[int, Process] = {}
        self._launcher = launcher
        self._used: dict[int, float] = {}  # seconds in a row, by process
        self._own: dict[int | None, float] = {}  # and of the run's own, by the CPU on which they ran last
        self._kernel: dict[int | None, float] = {}  # and of the kernel's threads
        self._times: dict[int, _Times] = {}
        self._throttled = self._throttles = 0.0  # time stopped, and times slowed down, up to now
        self._stopped: dict[Path, float] = {}  # the counters of control groups
        self._slowed: dict[int, int] = {}  # those of cores
        self._next_clock = 0
        self._doubtful: set[str] = set()  # names of counters whose change in this row cannot be
        self.at = 0.0
        self.at, self._before = self._read()

    def read_changes(self) -> tuple[float, dict[str, float | None], str] | None:
        """Since the last time: the seconds, by how much each of `COUNTED` has changed, and the busiest others.

        A change that cannot be is None, and its name is in `doubtful`. None if no time has passed.
        """
        earlier, times = self._processes, self._times
        self._doubtful.clear()
        at, counters = self._read()
        longest_s = self._clock() - self.at  # the files were read at some moment of both readings
        seconds = at - self.at
        if seconds <= 0:
            return None
        changes = {name: self._find_change(name, counters[name], longest_s) for name in counters}
        if (throttled := changes["throttled_s"]) is not None:
            changes["throttled_s"] = min(seconds, throttled)  # the kernel adds up the CPUs of a group
        self.at, self._before = at, counters
        of_ranks = {cpus: self._compute_cpu_times(cpus, times, longest_s) for cpus in self._list_rank_cores(seconds)}
        self._cores = self._cores.union(*of_ranks)
        for cpus, values in of_ranks.items():
            self._ranks.note_lost(cpus, (values["others_cpu_s"] or 0.0) + (values["steal_s"] or 0.0), seconds)
        self._of_row = self._ranks.choose_most_lost(of_ranks)
        return seconds, {**of_ranks[self._of_row], **changes}, self._name_busiest(earlier, seconds)

    def _find_change(self, name: str, value: float | None, seconds: float) -> float | None:
        """By how much a counter rose in so many seconds; None, and doubtful, if it cannot have risen so."""
        before = self._before[name]
        change = compute_increase(before, value, self._find_most(name, seconds))
        if change is None and before is not None and value is not None:
            self._doubtful.add(name)
        return None if name in self._doubtful else change

    def _find_most(self, name: str, seconds: float) -> float:
        """By how much a counter can rise in so many seconds; processor time on all CPUs of the host."""
        return seconds * MOST_PER_S.get(name, max(len(self._times), os.cpu_count() or 1))

    @property
    def doubtful(self) -> list[str]:
        """Names of the counters whose change in the last `read_changes` cannot be."""
        return sorted(self._doubtful)

    @property
    def is_stopped(self) -> bool:
        """True if a process of the run was stopped at the last reading: by a signal, or by a debugger while idle."""
        return any(
            (each.is_stopped or (each.is_traced and not self._used.get(pid))) and self._is_of_run(pid, each)
            for pid, each in self._processes.items()
        )

    def is_own(self, pid: int) -> bool | None:
        """Whether a process is the run's, as of the last reading; None if there was none of this number."""
        process = self._processes.get(pid)
        return None if process is None else self._is_of_run(pid, process)

    @property
    def number_of_cores(self) -> int:
        """Number of logical CPUs covered by the last `read_changes`."""
        return len(self._of_row)

    def read_clock_mhz(self) -> float | None:
        """The mean clock rate of the run's cores; where reading takes long, of some of them, at each call of others.

        On x86, Linux before 5.18 waits for 10 ms in each reading, so that those of 128 cores take over a second.
        """
        rates, every, until = [], sorted(self._cores), time.monotonic() + CLOCK_S
        for _ in every:
            core = every[self._next_clock % len(every)]
            self._next_clock += 1
            if (text := self._read_text(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq")).isdecimal():
                rates += [rate for rate in [int(text) / 1e3] if 0 < rate <= MOST_MHZ]
            if time.monotonic() >= until:
                break
        return sum(rates) / len(rates) if rates else None

    def _read(self) -> tuple[float, dict[str, float | None]]:
        """The moment, and counters since some time in the past."""
        at = self._clock()
        self._times = dict(self._read_cpu_times())
        self._read_processes()
        pages = _parse_numbers(self._read_text("proc/vmstat"))
        swapped = [pages[name] for name in ("pswpin", "pswpout") if name in pages]
        return at, {
            "throttled_s": self._read_throttled_s(),
            "swapped_mb": sum(swapped) * PAGE_MB if swapped else None,
            "memory_stalled_s": self._read_stalled_s("memory"),
            "io_stalled_s": self._read_stalled_s("io"),
            "major_faults": pages.get("pgmajfault"),
            "thermal_throttles": self._count_thermal_throttles(),
        }

    def _read_cpu_times(self) -> Iterator[tuple[int, _Times]]:
        """(number, `_Times`) of each logical CPU in /proc/stat."""
        if not cores.has_kernel_counts(self._root):
            return
        for line in self._read_text("proc/stat").splitlines():
            name, *numbers = line.split() or [""]
            core = name.removeprefix("cpu")
            if name != core and core.isdigit() and _has_counts(numbers):
                # user, nice, system; the time of guests is within the first two
                yield int(core), _Times(sum(map(int, numbers[:3])) / TICKS, int(numbers[7]) / TICKS)

    def _compute_cpu_times(self, cpus: Cpus, before: Mapping[int, _Times], seconds: float) -> dict[str, float | None]:
        """`TIMES` of some logical CPUs in this row, but for those of control groups.

        Steal is of these CPUs alone, all else also of the other hyper-threads of their cores.

        Args:
            cpus: the logical CPUs.
            before: their times at the begin of the row.
            seconds: the longest time that can have passed; no CPU was busy for longer.
        """
        near, counted = self._ranks.add_siblings(cpus), self._times.keys() & before.keys()
        own, kernel = (
            None if name in self._doubtful else sum(used for cpu, used in by_cpu.items() if cpu is None or cpu in near)
            for name, by_cpu in (("own_cpu_s", self._own), ("kernel_cpu_s", self._kernel))
        )
        others: float | None = None
        steal: float | None = None
        if cpus <= counted:
            busy = self._sum_increases("others_cpu_s", near & counted, before, seconds, lambda each: each.busy)
            steal = self._sum_increases("steal_s", cpus, before, seconds, lambda each: each.steal)
            others = None if busy is None or own is None or kernel is None else max(0.0, busy - own - kernel)
        return {"own_cpu_s": own, "others_cpu_s": others, "kernel_cpu_s": kernel, "steal_s": steal}

    def _sum_increases(
        self,
        name: str,
        cpus: Cpus,
        before: Mapping[int, _Times],
        seconds: float,
        select: Callable[[_Times], float],
    ) -> float | None:
        """Sum of what ``select`` gives of these CPUs since ``before``; None, and ``name`` doubtful, if it cannot be."""
        rises = [compute_increase(select(before[cpu]), select(self._times[cpu]), seconds, TICKS_OFF_S) for cpu in cpus]
        if None in rises:
            self._doubtful.add(name)
            return None
        return sum(each for each in rises if each is not None)

    def _list_rank_cores(self, seconds: float) -> list[Cpus]:
        """The cores of the run's ranks. seconds: of the row."""
        marked = {pid: each for pid, each in self._processes.items() if (pid, each.started) in self._marked}
        return self._ranks.list_cores_of_ranks(marked, {pid: self._used.get(pid, 0.0) / seconds for pid in marked})

    def _read_processes(self) -> None:
        """Read all processes, and add up this row's processor seconds of the run's own and of the kernel's threads.

        What a process used in its last moments is in its parent's time of ended children, if the parent waited for it.
        Of that, what was counted while it ran is not counted again.
        """
        before, self._processes = self._processes, dict(self._list_processes())
        for key in self._unsettled:
            self._is_own.pop(key, None)
        self._unsettled.clear()
        self._add_serving()
        counted = self._sum_time_of_ended(before)
        self._used, self._own, self._kernel = {}, defaultdict(float), defaultdict(float)
        for pid, process in self._processes.items():
            earlier = before.get(pid)
            if earlier is None or earlier.started != process.started:
                earlier = process._replace(seconds=0.0, own_s=0.0)
            used = compute_increase(earlier.own_s, process.own_s, self._find_most_s(process, earlier), TICKS_OFF_S)
            self._used[pid] = used or 0.0
            if used is None:
                if process.is_kernel or self._is_of_run(pid, process):
                    self._doubtful.add("kernel_cpu_s" if process.is_kernel else "own_cpu_s")
            elif process.is_kernel:
                self._kernel[process.cpu] += used
            elif self._is_of_run(pid, process):
                ended = process.seconds - process.own_s - (earlier.seconds - earlier.own_s)
                self._own[process.cpu] += used + max(0.0, ended - counted.get(pid, 0.0))
        keys = {(pid, process.started) for pid, process in self._processes.items()}
        self._is_own = {key: value for key, value in self._is_own.items() if key in keys}
        self._marked &= keys

    def _find_most_s(self, process: Process, earlier: Process) -> float:
        """The most processor seconds that a process can have used since ``earlier``: of its whole life, if it began."""
        passed = self._clock() - self.at if earlier.own_s or earlier.seconds else math.inf
        return self._find_most("own_cpu_s", passed)

    def _sum_time_of_ended(self, before: Mapping[int, Process]) -> dict[int, float]:
        """{process: time of own processes below it that have ended since ``before``, as far as it was counted}."""
        seconds: dict[int, float] = {}
        for pid, process in before.items():
            if self._is_alive(pid, process) or not self._is_of_run(pid, process):
                continue
            above = process
            while (parent := before.get(above.parent)) and not self._is_alive(above.parent, parent):
                above = parent
            seconds[above.parent] = seconds.get(above.parent, 0.0) + process.seconds
        return seconds

    def _is_alive(self, pid: int, process: Process) -> bool:
        return pid in self._processes and self._processes[pid].started == process.started

    def _add_serving(self) -> None:
        """Count processes that serve only the run as the run's, from the ranks upwards (`SERVING`)."""
        serving = {pid: each for pid, each in self._processes.items() if each.name in SERVING}
        below: dict[int, list[int]] = {pid: [] for pid in serving}
        for pid, process in self._processes.items():
            if process.parent in below:
                below[process.parent].append(pid)
        for pid, process in sorted(serving.items(), key=lambda each: -each[1].started):  # a child starts after it
            children = below[pid]
            if children and all(self._is_of_run(child, self._processes[child]) for child in children):
                self._is_own[pid, process.started] = True
                self._unsettled.discard((pid, process.started))

    def _list_processes(self) -> Iterator[tuple[int, Process]]:
        for entry in os.listdir(self._root / "proc"):  # noqa: PTH208  thousands of names
            if entry.isdigit() and (process := host_processes.parse_stat(self._read_bytes(f"proc/{entry}/stat"))):
                yield int(entry), process

    def _is_of_run(self, pid: int, process: Process) -> bool:
        """Whether a process is the run's: the one that launched it, or by its environment, or by its parent.

        A process that has just begun may be about to become the run's program: it is looked at again.
        """
        key = pid, process.started
        if key not in self._is_own:
            parent = self._processes.get(process.parent)
            if not process.is_kernel and self._mark in self._read_bytes(f"proc/{pid}/environ").split(b"\0"):
                self._marked.add(key)
            self._is_own[key] = not process.is_kernel and (
                pid == self._launcher
                or key in self._marked
                # One that began later has only the number of the parent.
                or (parent is not None and parent.started <= process.started and pid != process.parent
                    and self._is_of_run(process.parent, parent))
            )  # fmt: skip
            if not self._is_own[key] and host_processes.compute_age_s(process) < SETTLED_S:
                self._unsettled.add(key)
        return self._is_own[key]

    def _name_busiest(self, earlier: Mapping[int, Process], seconds: float) -> str:
        """Others that used the most of the row's cores: ``cc1plus 0.93, backup 0.10``, in cores."""
        used: dict[str, float] = {}
        near = self._ranks.add_siblings(self._of_row)
        for pid, process in self._processes.items():
            before = earlier.get(pid)
            is_elsewhere = process.cpu is not None and process.cpu not in near
            if is_elsewhere or process.is_kernel or self._is_of_run(pid, process):
                continue
            since = before.own_s if before and before.started == process.started else 0.0
            used[process.name] = used.get(process.name, 0.0) + (process.own_s - since) / seconds
        most = sorted(used.items(), key=lambda each: -each[1])[:3]
        return ", ".join(f"{name} {number:.2f}" for name, number in most if number >= NAMED_CORES)

    def _read_throttled_s(self) -> float | None:
        """Seconds for which control groups stopped their processes, on all CPUs together, up to now.

        Since the last reading: of the group, or one above, with the most. Each has a past of its own.
        """
        stopped: dict[Path, float] = {}
        for group in self._groups:
            numbers = _parse_numbers(cores.read_or_empty(group / "cpu.stat"))
            if "throttled_usec" in numbers:  # version 2
                stopped[group] = numbers["throttled_usec"] / 1e6
            elif "throttled_time" in numbers:
                stopped[group] = numbers["throttled_time"] / 1e9
        most = self._find_most("throttled_s", self._clock() - self.at)
        more = [
            compute_increase(self._stopped[group], value, most)
            for group, value in stopped.items()
            if group in self._stopped
        ]
        self._stopped |= stopped
        if None in more:
            self._doubtful.add("throttled_s")
        self._throttled += max((each for each in more if each is not None), default=0.0)
        return self._throttled if stopped else None

    def _read_stalled_s(self, resource: str) -> float | None:
        """Seconds in which some process of the host waited for the resource."""
        for line in self._read_text(f"proc/pressure/{resource}").splitlines():
            kind, *values = line.split()
            numbers = dict(value.split("=") for value in values if "=" in value)
            if kind == "some" and numbers.get("total", "").isdecimal():
                return int(numbers["total"]) / 1e6
        return None

    def _count_thermal_throttles(self) -> float | None:
        """Number of times that the cores were slowed down up to now; each has a past of its own."""
        names = (
            (core, f"sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count") for core in self._cores
        )
        counts = {core: int(text) for core, name in names if (text := self._read_text(name)).isdecimal()}
        most = self._find_most("thermal_throttles", self._clock() - self.at)
        more = [compute_increase(self._slowed.get(core, count), count, most) for core, count in counts.items()]
        if None in more:
            self._doubtful.add("thermal_throttles")
        self._throttles += sum(each for each in more if each is not None)
        self._slowed = counts
        return self._throttles if counts else None

    def _read_text(self, name: str) -> str:
        return cores.read_or_empty(self._root / name)

    def _read_bytes(self, name: str) -> bytes:
        """Content of a file; empty for a process that has ended or is another user's. There may be thousands."""
        try:
            descriptor = os.open(f"{self._root}/{name}", os.O_RDONLY)
        except OSError:
            return b""
        try:
            parts = iter(lambda: os.read(descriptor, 1 << 16), b"")
            return b"".join(parts)
        except OSError:
            return b""
        finally:
            os.close(descriptor)


def _has_counts(numbers: list[str]) -> bool:
    """Whether the numbers of a core in /proc/stat count something: a sandbox (gVisor) has them, and all are 0."""
    return len(numbers) >= NUMBERS and all(map(str.isdecimal, numbers)) and any(each.strip("0") for each in numbers)


def _parse_numbers(text: str) -> dict[str, int]:
    """Lines of a name and a whole number."""
    parts = (line.split() for line in text.splitlines())
    return {part[0]: int(part[1]) for part in parts if len(part) == 2 and part[1].isdecimal()}
