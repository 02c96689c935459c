"""Keys of the libraries that carry gradients: NCCL, and the network interface of NCCL and Gloo.

Each is an environment variable of the ranks, see `study.launch.variables`. Their names and values are those of NCCL's
documentation, "Environment Variables".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study.experiment.parameter import Choice, Count, Name, Parameter
from study.experiment.parameters.registry import declare, idle_alone
from study.machines import launchers, probe
from study.machines.hosts import INTERFACE
from study.machines.process_roles import DDP, HOROVOD
from study.workloads import command

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

KEYS = ("nccl_algorithm", "nccl_protocol", "nccl_min_channels", "communication_interface")
DEFAULT = "default"  # the library's own choice
ALGORITHMS = ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")


def _is_ours(run: PlannedRun) -> bool:
    """Whether the ranks are started with these variables by a library that obeys them."""
    return run.kind == command.KIND or run["strategy"] in (HOROVOD, DDP)


def _of_nccl(name: str, off: Any) -> dict[str, Any]:
    """The refusals of a key of NCCL's. off: its value that sets nothing."""

    def refuse(run: PlannedRun) -> str | None:
        if run[name] == off or _is_ours(run):
            return None
        return f"it was not tried with strategy: {run['strategy']}; use horovod or ddp"

    def refuse_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
        if run[name] == off or machine["gpus_per_rank"]:
            return None
        return "it is NCCL's, and the machine's ranks have no GPUs: they communicate over Gloo or MPI"

    return {"refuse": refuse, "refuse_on": refuse_on, "idle": idle_alone}


def _interface(run: PlannedRun) -> str | None:
    name = run["communication_interface"]
    if name == DEFAULT:
        return None
    if not INTERFACE.fullmatch(name):
        return f"{name!r} is no name of a network interface; give one of `ip link`"
    return None if _is_ours(run) else f"strategy: {run['strategy']} takes none; use horovod or ddp"


def _interface_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    name = run["communication_interface"]
    if name == DEFAULT:
        return None
    if machine.get("hosts"):
        return "the machine's file names the interface of each host (interface); give two machine files"
    if run.kind != command.KIND and run["strategy"] == HOROVOD and not machine["gpus_per_rank"]:
        return "Horovod's Gloo and MPI take theirs from the launcher; use strategy: ddp"
    return _missing_here(name) if _is_here(machine) else None


def _is_here(machine: Mapping[str, Any]) -> bool:
    return "scheduler" not in machine and launchers.of(dict(machine)).on_own_hosts


def _missing_here(name: str) -> str | None:
    known = [interface for interface, _ in probe.interfaces()]
    has = ", ".join(known)
    return None if name in known else f"this host has no interface {name} with an IPv4 address; it has {has}"


declare(
    Parameter(
        "nccl_algorithm",
        Choice((DEFAULT, *ALGORITHMS)),
        "The algorithm of NCCL's collective operations (NCCL_ALGO); `default`: NCCL chooses by size of the message. "
        "Needs GPUs.",
        default=DEFAULT,
        default_in_papers=True,
        label="NCCL algorithm",
        **_of_nccl("nccl_algorithm", DEFAULT),
    )
)

declare(
    Parameter(
        "nccl_protocol",
        Choice((DEFAULT, *PROTOCOLS)),
        "The protocol of NCCL's transfers (NCCL_PROTO); `default`: NCCL chooses. Needs GPUs.",
        default=DEFAULT,
        default_in_papers=True,
        label="NCCL protocol",
        **_of_nccl("nccl_protocol", DEFAULT),
    )
)

declare(
    Parameter(
        "nccl_min_channels",
        Count(0, 64),
        "The least number of channels that NCCL uses, each a block of the GPU (NCCL_MIN_NCHANNELS); 0: NCCL's own "
        "number. Needs GPUs.",
        default=0,
        unit="channels",
        default_in_papers=True,
        label="least NCCL channels",
        **_of_nccl("nccl_min_channels", 0),
    )
)

declare(
    Parameter(
        "communication_interface",
        Name(),
        "The network interface of the gradients (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME): of strategy ddp, of Horovod "
        "on GPUs, and of commands. `default`: the library's own choice, or the machine file's.",
        default=DEFAULT,
        default_in_papers=True,
        refuse=_interface,
        refuse_on=_interface_on,
        idle=idle_alone,
    )
)
