"""How many ranks a machine carries: as many as the cores or GPUs of this host, where it starts ranks here itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from study.core import cores
from study.core.errors import StudyError
from study.core.wording import counted
from study.machines import launchers, process_roles

CORES, GPUS = "cores", "GPUs"


@dataclass(frozen=True)
class Capacity:
    """ranks: the most. why: what sets this number. shared: what more ranks would share; empty if the file sets it."""

    ranks: int
    why: str
    shared: str = ""

    @property
    def words(self) -> str:
        """``2 ranks (2 cores, 1 for each rank)``."""
        return f"{counted(self.ranks, 'rank')} ({self.why})"


def of(machine: Mapping[str, Any]) -> Capacity:
    """What a machine carries.

    Raises:
        StudyError: GPUs are needed, and this host's cannot be counted.
    """
    by_file = Capacity(launchers.ranks_by_file(machine), "as its file says")
    if not is_here(machine):
        return by_file
    most = launchers.most_ranks(dict(machine))
    if most >= by_file.ranks:
        return by_file
    if machine["gpus_per_rank"]:
        return Capacity(most, "by the GPUs that CUDA shows here", GPUS)
    return Capacity(most, f"{counted(f'{cores.usable():g}', 'core')}, {machine['cores_per_rank']} for each rank", CORES)


def known(machine: Mapping[str, Any]) -> Capacity | None:
    """As `of`; None where it cannot be counted."""
    try:
        return of(machine)
    except StudyError:
        return None


def is_here(machine: Mapping[str, Any]) -> bool:
    """Whether a machine's ranks are started on this host, whose cores and GPUs can be counted."""
    return "scheduler" not in machine and not machine.get("hosts") and launchers.of(dict(machine)).on_own_hosts


def cores_needed(parameters: Mapping[str, Any], machine: Mapping[str, Any]) -> int:
    """Cores that the processes of a run need where all are on this host, a chief and servers among them.

    parameters: {grid key: value} of the run.
    """
    started = process_roles.roles(parameters["strategy"], parameters["gpus"], parameters["servers"])
    return len(started) * cores_of_rank(parameters, machine)


def cores_of_rank(parameters: Mapping[str, Any], machine: Mapping[str, Any]) -> int:
    """Cores that each rank is meant to have: ``cores_per_rank`` of the machine's file, or more if it has more threads.

    parameters: {grid key: value} of the run; a key that an older run lacks has its default.
    """
    own, communication = parameters.get("intra_op_threads", 0), parameters.get("communication_cores", 0)
    threads = own + communication if own else machine["cores_per_rank"]
    return int(max(machine["cores_per_rank"], threads, parameters.get("inter_op_threads", 0)))
