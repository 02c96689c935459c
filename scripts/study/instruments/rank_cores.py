"""Where the ranks of a run may run on this host, and which of these cores have lost the most to others until now.

Ranks may have cores of their own, by their launcher or by cpusets. They wait for each other, so the one that loses the
most counts. Ranks that share cores are one. Two hyper-threads are one core, also where a rank may use one of them only.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from study.core import cores
from study.instruments import process_stat
from study.instruments.process_stat import NO_RANKS, Process

AT_WORK = 0.1  # cores; a process that has started others and uses less is a launcher
WORKED_S = 1.0  # processor time of a rank, at least; what watches over one, such as Python's for semaphores, has less
BOUND_S = 120.0  # after its start, a process's threads are not bound to other cores

Cpus = frozenset[int]  # logical CPUs


class RankCores:
    """The cores of the ranks, from row to row. root: below which /proc and /sys are read; tests have others."""

    def __init__(self, root: Path = cores.ROOT) -> None:
        self._root = root
        self._near: dict[Cpus, Cpus] = {}
        self._bound: dict[tuple[int, int], tuple[int, Cpus]] = {}  # by process id and start: (threads, where they run)
        self._lost: dict[Cpus, tuple[float, float]] = {}  # until now: (lost, available), seconds

    def near(self, cpus: Cpus) -> Cpus:
        """Logical CPUs with the other hyper-threads of their cores."""
        if cpus not in self._near:
            self._near[cpus] = cores.with_siblings(cpus, self._root)
        return self._near[cpus]

    def of(self, processes: Mapping[int, Process], at_work: Mapping[int, float]) -> list[Cpus]:
        """The logical CPUs of each rank, those of ranks that share cores together; where this process may run, if none.

        A rank has worked, and has started none of these processes. One that has, such as a launcher or a rank with
        workers, is a rank only while it works itself.

        Args:
            processes: that have the run's environment.
            at_work: the cores that each has used since the last row.
        """
        others = {pid: each for pid, each in processes.items() if pid != os.getpid()}
        starting = {each.parent for each in others.values()}
        found: list[Cpus] = []
        for pid, process in others.items():
            works = at_work.get(pid, 0.0) >= AT_WORK if pid in starting else process.seconds >= WORKED_S
            if process.name in NO_RANKS or not works:
                continue
            if cpus := self._where(pid, process):
                shared = [each for each in found if not self.near(cpus).isdisjoint(each)]
                found = [each for each in found if each not in shared] + [cpus.union(*shared)]
        self._bound = {key: known for key, known in self._bound.items() if key[0] in processes}
        return found or [frozenset(cores.allowed())]

    def _where(self, pid: int, process: Process) -> Cpus:
        """Where a process may run; read again while its threads change or may yet be bound."""
        key = pid, process.started
        threads, known = self._bound.get(key, (0, frozenset[int]()))
        if threads != process.threads or process_stat.age_s(process) < BOUND_S:
            known = cores.of_process(pid, self._root)
            self._bound[key] = process.threads, known
        return known

    def with_most_lost(self, found: Iterable[Cpus]) -> Cpus:
        """Those of which others have taken the largest share, of all that `note` was told: chance must not choose."""

        def share(cpus: Cpus) -> float:
            lost, available = self._lost.get(cpus, (0.0, 0.0))
            return lost / available if available else 0.0

        return max(found, key=lambda cpus: (share(cpus), len(cpus), -min(cpus)))

    def note(self, cpus: Cpus, lost_s: float, seconds: float) -> None:
        """Of the processor time of these in so many seconds, others have taken so much."""
        lost, available = self._lost.get(cpus, (0.0, 0.0))
        self._lost[cpus] = lost + lost_s, available + seconds * len(cpus)
