"""Which cores a rank's threads run on, under the grid keys ``binding`` and ``communication_cores``."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from study.communication.collectives import Collectives
from study.core import cores
from study.core.boot import boot_id
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition

NUMA_NODES = Path("/sys/devices/system/node")


def bind(run: RunDefinition, communicator: Collectives) -> dict[str, list[int]] | None:
    """Bind the threads of this process; threads that they start later inherit it.

    Returns the cores: ``compute``, and ``communication`` if some are left to the communication library's threads; None
    without binding. Raises `StudyError` if the host has fewer cores than its ranks need.
    """
    binding = run.parameters.get("binding", "none")
    if binding == "none":
        return None
    allowed = cores.allowed()
    # A launcher may have given each rank cores of its own, or several ranks those of a socket; containers of one
    # machine, and machines of one name, have other cores or another boot.
    everyone = communicator.gather([socket.gethostname(), boot_id(), allowed])
    own = everyone[communicator.rank]
    local, ranks = everyone[: communicator.rank].count(own), everyone.count(own)
    if binding == "numa":
        own_by_kind = {"compute": numa_node(allowed, local, ranks)}
    else:
        _check_quota(needed := run.machine["cores_per_rank"] * ranks)
        own = own_cores(cores.by_core(needed), run.machine["cores_per_rank"], local, ranks)
        left = len(own) - run["communication_cores"]
        own_by_kind = {"compute": own[:left], "communication": own[left:]}
        own_by_kind = {kind: numbers for kind, numbers in own_by_kind.items() if numbers}
    for thread in (int(path.name) for path in Path("/proc/self/task").iterdir()):
        kind = "communication" if thread in communicator.own_threads and "communication" in own_by_kind else "compute"
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(thread, own_by_kind[kind])
    return own_by_kind


def _check_quota(needed: int) -> None:
    """Raise `StudyError` if control groups allow the ranks less CPU time than that of the cores they are bound to."""
    most = cores.quota()
    if most is not None and most < needed:
        raise StudyError(
            f"binding: core needs {needed} cores for the ranks of this host, and a control group's quota (cpu.max or "
            f"cpu.cfs_quota_us) allows the time of {most:g}; start fewer ranks, or use binding: none"
        )


def own_cores(allowed: list[int], number: int, local_rank: int, local_size: int) -> list[int]:
    """A rank's ``number`` cores of those ``allowed``, which it shares with the other ranks of its host."""
    if len(allowed) < number * local_size:
        raise StudyError(
            f"binding: core needs {number} cores for each of the {local_size} ranks of this host, which has "
            f"{len(allowed)}; start fewer ranks, or use binding: none"
        )
    return allowed[local_rank * number : (local_rank + 1) * number]


def numa_node(allowed: list[int], local_rank: int, local_size: int, nodes: Path = NUMA_NODES) -> list[int]:
    """The ``allowed`` cores of a rank's NUMA node: the ranks are spread over the nodes in order."""
    found = []
    for path in sorted(nodes.glob("node[0-9]*/cpulist"), key=lambda each: int(each.parent.name[4:])):
        own = [core for core in cores.listed(path.read_text()) if core in allowed]
        found += [own] if own else []
    return found[local_rank * len(found) // local_size] if found else allowed
