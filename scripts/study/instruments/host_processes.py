"""The processes of a host (proc_pid_stat(5)): which only serve a run, where its ranks run, and what others took there.

Ranks may have cores of their own, by their launcher or by cpusets. They wait for each other, so the one that loses the
most counts. Ranks that share cores are one. Two hyper-threads are one core, also where a rank may use one of them only.
"""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from study.core import cores

TICKS = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x00200000  # PF_KTHREAD, a flag in /proc/PID/stat
# Names of processes that only start a run's processes and pass on what they print: the run's, if all their children
# are. They are started by daemons, or over ssh, so their environment does not say it. The kernel keeps 15 characters.
SERVING = frozenset((
    "slurmstepd", "srun", "orted", "prted", "prterun", "mpirun", "mpiexec", "hydra_pmi_proxy", "hydra_bstrap_pr",
    "mpiexec.hydra", "mpispawn", "jsrun", "jsmd", "aprun", "apinit", "apshepherd", "palsd", "flux-shell", "sshd",
    "sshd-session", "sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh",
))  # fmt: skip
NO_RANKS = SERVING | {"ssh", "flux", "flux-run"}  # and of those that a run starts to reach other hosts

AT_WORK = 0.1  # cores; a process that has started others and uses less is a launcher
WORKED_S = 1.0  # processor time of a rank, at least; what watches over one, such as Python's for semaphores, has less
BOUND_S = 120.0  # after its start, a process's threads are not bound to other cores

Cpus = frozenset[int]  # logical CPUs


class Process(NamedTuple):
    """A process at one moment.

    seconds: processor time, its ended children's included; own_s: without these. threads: their number. cpu: the
    logical CPU on which its first thread ran last; None where that is not told. is_stopped: by a signal (SIGSTOP).
    is_traced: stopped by a debugger, as also for an instant at each system call that is traced.
    """

    name: str
    parent: int
    started: int
    is_kernel: bool
    seconds: float
    own_s: float
    threads: int
    cpu: int | None
    is_stopped: bool = False
    is_traced: bool = False


def parse_stat(stat: bytes) -> Process | None:
    """A process from the text of its ``stat``; None if it has ended. The name may have blanks and brackets."""
    before, _, after = stat.rpartition(b")")
    fields = after.split()
    if len(fields) < 20:
        return None
    own, ended = (sum(map(int, fields[place : place + 2])) / TICKS for place in (11, 13))
    # Any text may be a name; a list of them has commas.
    name = " ".join(before.partition(b"(")[2].decode("utf-8", "replace").replace(",", " ").split()) or "?"
    is_kernel, cpu = bool(int(fields[6]) & KERNEL_THREAD), int(fields[36]) if len(fields) > 36 else None
    states = fields[0] == b"T", fields[0] == b"t"
    return Process(name, int(fields[1]), int(fields[19]), is_kernel, own + ended, own, int(fields[17]), cpu, *states)


def compute_age_s(process: Process) -> float:
    """Seconds since its start."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / TICKS


class RankCores:
    """The cores of the ranks, from row to row. root: below which /proc and /sys are read; tests have others."""

    def __init__(self, root: Path = cores.ROOT) -> None:
        self._root = root
        self._near: dict[Cpus, Cpus] = {}
        self._bound: dict[tuple[int, int], tuple[int, Cpus]] = {}  # by process id and start: (threads, where they run)
        self._lost: dict[Cpus, tuple[float, float]] = {}  # until now: (lost, available), seconds

    def add_siblings(self, cpus: Cpus) -> Cpus:
        """Logical CPUs with the other hyper-threads of their cores."""
        if cpus not in self._near:
            self._near[cpus] = cores.add_siblings(cpus, self._root)
        return self._near[cpus]

    def list_cores_of_ranks(self, processes: Mapping[int, Process], at_work: Mapping[int, float]) -> list[Cpus]:
        """The logical CPUs of each rank, those of ranks that share cores together; where this process may run, if none.

        A rank has worked, and has started none of these processes. One that has, such as a launcher or a rank with
        workers, is a rank only while it works itself.

        Args:
            processes: that have the run's environment.
            at_work: the cores that each has used since the last row.
        """
        others = {pid: each for pid, each in processes.items() if pid != os.getpid()}
        starting = {each.parent for each in others.values()}
        ranks: list[Cpus] = []
        for pid, process in others.items():
            works = at_work.get(pid, 0.0) >= AT_WORK if pid in starting else process.seconds >= WORKED_S
            if process.name in NO_RANKS or not works:
                continue
            if cpus := self._find_cpus(pid, process):
                shared = [each for each in ranks if not self.add_siblings(cpus).isdisjoint(each)]
                ranks = [each for each in ranks if each not in shared] + [cpus.union(*shared)]
        self._bound = {key: bound for key, bound in self._bound.items() if key[0] in processes}
        return ranks or [frozenset(cores.list_allowed_cpus())]

    def _find_cpus(self, pid: int, process: Process) -> Cpus:
        """Logical CPUs on which a process may run; read again while its threads change or may yet be bound."""
        key = pid, process.started
        threads, cpus = self._bound.get(key, (0, frozenset[int]()))
        if threads != process.threads or compute_age_s(process) < BOUND_S:
            cpus = cores.read_cpus_of_process(pid, self._root)
            self._bound[key] = process.threads, cpus
        return cpus

    def choose_most_lost(self, candidates: Iterable[Cpus]) -> Cpus:
        """Choose the cores of which other processes took the largest share of time: chance must not choose."""

        def share(cpus: Cpus) -> float:
            lost, available = self._lost.get(cpus, (0.0, 0.0))
            return lost / available if available else 0.0

        return max(candidates, key=lambda cpus: (share(cpus), len(cpus), -min(cpus)))

    def note_lost(self, cpus: Cpus, lost_s: float, seconds: float) -> None:
        """Note how much of the processor time of these CPUs others took in so many seconds."""
        lost, available = self._lost.get(cpus, (0.0, 0.0))
        self._lost[cpus] = lost + lost_s, available + seconds * len(cpus)
