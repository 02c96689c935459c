"""Binding of a rank's threads to cores, under the grid keys ``binding`` and ``communication_cores``."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from study.communication.collectives import Collectives
from study.core import cores
from study.core.boot import read_boot_id
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition

NUMA_NODES = Path("/sys/devices/system/node")


def bind_threads(run: RunDefinition, communicator: Collectives) -> dict[str, list[int]] | None:
    """Bind the threads of this rank to its cores; threads that they start later inherit it.

    Returns the cores: ``compute``, and ``communication`` if some are left to the communication library's threads; None
    without binding. Raises `StudyError` if the host has fewer cores than its ranks need.
    """
    binding = run.parameters.get("binding", "none")
    if binding == "none":
        return None
    allowed = cores.list_allowed_cpus()
    # A launcher may have given each rank cores of its own, or several ranks those of a socket; containers of one
    # machine, and machines of one name, have other cores or another boot.
    everyone = communicator.gather([socket.gethostname(), read_boot_id(), allowed])
    own = everyone[communicator.rank]
    local, ranks = everyone[: communicator.rank].count(own), everyone.count(own)
    if binding == "numa":
        own_by_kind = {"compute": choose_numa_cores(allowed, local, ranks)}
    else:
        _check_quota(needed := run.machine["cores_per_rank"] * ranks)
        own = choose_own_cores(cores.order_cpus_by_core(needed), run.machine["cores_per_rank"], local, ranks)
        compute_cores = len(own) - run["communication_cores"]
        own_by_kind = {"compute": own[:compute_cores], "communication": own[compute_cores:]}
        own_by_kind = {kind: numbers for kind, numbers in own_by_kind.items() if numbers}
    for thread in (int(path.name) for path in Path("/proc/self/task").iterdir()):
        kind = "communication" if thread in communicator.own_threads and "communication" in own_by_kind else "compute"
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(thread, own_by_kind[kind])
    return own_by_kind


def _check_quota(needed: int) -> None:
    """Raise `StudyError` if control groups allow a host's ranks less CPU time than the cores that they are bound to."""
    quota = cores.read_cpu_quota()
    if quota is not None and quota < needed:
        raise StudyError(
            f"binding: core needs {needed} cores for the ranks of this host, and a control group's quota (cpu.max or "
            f"cpu.cfs_quota_us) allows the time of {quota:g}; start fewer ranks, or use binding: none"
        )


def choose_own_cores(allowed: list[int], number: int, local_rank: int, local_size: int) -> list[int]:
    """The ``number`` consecutive cores of a rank, of those ``allowed`` to all ranks of its host.

    Raises:
        StudyError: the host has fewer than all of its ranks need.
    """
    if len(allowed) < number * local_size:
        raise StudyError(
            f"binding: core needs {number} cores for each of the {local_size} ranks of this host, which has "
            f"{len(allowed)}; start fewer ranks, or use binding: none"
        )
    return allowed[local_rank * number : (local_rank + 1) * number]


def choose_numa_cores(allowed: list[int], local_rank: int, local_size: int, nodes: Path = NUMA_NODES) -> list[int]:
    """The ``allowed`` cores of a rank's NUMA node; the ranks are spread over the nodes in order."""
    cores_by_node = []
    for path in sorted(nodes.glob("node[0-9]*/cpulist"), key=lambda each: int(each.parent.name[4:])):
        own = [core for core in cores.parse_cpu_list(path.read_text()) if core in allowed]
        cores_by_node += [own] if own else []
    return cores_by_node[local_rank * len(cores_by_node) // local_size] if cores_by_node else allowed
