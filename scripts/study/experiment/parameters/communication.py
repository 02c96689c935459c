"""Keys of the libraries that carry gradients: which one, NCCL's, Open MPI's and Gloo's settings, and the interface.

Most are environment variables of the ranks, see `study.launch.variables`. Names and values are those of NCCL's
documentation, "Environment Variables", and of ``ompi_info --param coll all --level 9``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from study.experiment.parameter import Choice, Count, Name, Parameter
from study.experiment.parameters.registry import declare, explain_idle_communication
from study.machines import host_capabilities, launchers, probe
from study.machines.run_layout import DDP, HOROVOD, INTERFACE
from study.workloads import command

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

# Of programs too, whose libraries obey the same variables.
KEYS = ("nccl_algorithm", "nccl_protocol", "nccl_min_channels", "communication_interface", "mpi_collectives",
        "mpi_allreduce_algorithm")  # fmt: skip
DEFAULT = "default"  # the library's own choice
GLOO, MPI = LIBRARIES = ("gloo", "mpi")
ALGORITHMS = ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
# Open MPI's modules with an allreduce. tuned: chooses an algorithm by size. sm: through shared memory of one node. han:
# within nodes, then between them.
MPI_MODULES = ("basic", "tuned", "sm", "han")
MPI_ALGORITHMS = ("basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring", "rabenseifner")


def _has_obeying_library(run: PlannedRun) -> bool:
    """Whether a run's ranks communicate by a library that obeys these variables."""
    return run.kind == command.KIND or run["strategy"] in (HOROVOD, DDP)


def _build_nccl_refusals(name: str, off: Any) -> dict[str, Any]:
    """The arguments ``refuse``, ``refuse_on`` and ``idle`` of a key of NCCL's. off: its value that sets nothing."""

    def refuse(run: PlannedRun) -> str | None:
        """The reason why a run cannot have its value of the key, or None."""
        if run[name] == off or _has_obeying_library(run):
            return None
        return f"it was not tried with strategy: {run['strategy']}; use horovod or ddp"

    def refuse_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
        """The reason why a run cannot have its value of the key on a machine, or None."""
        if run[name] == off or machine["gpus_per_rank"]:
            return None
        return "it is NCCL's, and the machine's ranks have no GPUs: they communicate over Gloo or MPI"

    return {"refuse": refuse, "refuse_on": refuse_on, "idle": explain_idle_communication}


def _refuse_interface(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``communication_interface``, or None."""
    name = run["communication_interface"]
    if name == DEFAULT:
        return None
    if not INTERFACE.fullmatch(name):
        return f"{name!r} is no name of a network interface; give one of `ip link`"
    return None if _has_obeying_library(run) else f"strategy: {run['strategy']} takes none; use horovod or ddp"


def _refuse_interface_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """The reason why a run cannot have its ``communication_interface`` on a machine, or None."""
    name = run["communication_interface"]
    if name == DEFAULT:
        return None
    if machine.get("hosts"):
        return "the machine's file names the interface of each host (interface); give two machine files"
    if run.kind != command.KIND and run["strategy"] == HOROVOD and not machine["gpus_per_rank"]:
        return "Horovod's Gloo and MPI take theirs from the launcher; use strategy: ddp"
    return _refuse_missing_interface(name) if _is_this_host(machine) else None


def _refuse_library(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``allreduce_library``, or None."""
    if run["allreduce_library"] == DEFAULT or run["strategy"] == HOROVOD:
        return None
    return f"strategy: {run['strategy']} has one library; use strategy: horovod"


def _refuse_library_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """machine: as `launchers.with_library` has it."""
    library, launcher = run["allreduce_library"], machine["launcher"]
    if library == DEFAULT:
        return None
    if machine["gpus_per_rank"]:
        return "the ranks have GPUs, between which Horovod reduces by NCCL"
    if launchers.get_launcher(dict(machine)).library != library:
        return f"launcher: {launcher} decides on the library; horovodrun starts ranks over Gloo, mpirun over MPI"
    if library != MPI:
        return None
    if not host_capabilities.is_in_horovod(run["framework"]):
        return "Horovod was built without MPI here; run make setup where mpicxx is on PATH"
    return None if launchers.is_installed(launcher) else f"{launcher} is not on PATH here"


def _build_mpi_refusal(name: str) -> Callable[[PlannedRun], str | None]:
    """A function that refuses a key of Open MPI's in runs that use another library."""

    def refuse(run: PlannedRun) -> str | None:
        """The reason why a run cannot have its value of the key, or None."""
        if run[name] == DEFAULT or run.kind == command.KIND or run["strategy"] == HOROVOD:
            return None
        return f"strategy: {run['strategy']} does not use MPI; use horovod"

    return refuse


def _build_mpi_refusal_on(name: str) -> Callable[[PlannedRun, Mapping[str, Any]], str | None]:
    """A function that refuses a key of Open MPI's on machines whose launcher is another."""

    def refuse_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
        """The reason why a run cannot have its value of the key on a machine, or None."""
        if run[name] == DEFAULT:
            return None
        if not isinstance(launchers.get_launcher(dict(machine)), launchers.Mpirun):
            remedy = "" if run.kind == command.KIND else " or, for launcher: horovodrun, allreduce_library: mpi"
            return f"it is Open MPI's, and launcher: {machine['launcher']} is not; use launcher: mpirun{remedy}"
        if machine["gpus_per_rank"] and run.kind != command.KIND:
            return "the ranks have GPUs, between which Horovod reduces by NCCL"
        return _refuse_module_on(run, machine)

    return refuse_on


def _refuse_module_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """The reason why Open MPI on a machine cannot use the run's module, or None."""
    module, nodes = run["mpi_collectives"], launchers.count_nodes(run.gpus, dict(machine))
    if module == "han" and nodes == 1:
        return "han reduces within nodes, then between them; with all ranks on one node it does not take part"
    if module == "sm" and nodes > 1:
        return f"sm reduces through the memory of one node; with ranks on {nodes} nodes it does not take part"
    if not _is_this_host(machine):
        return None
    if why := host_capabilities.explain_missing_mpi():
        return why
    needed = "tuned" if module == DEFAULT else module
    return None if host_capabilities.has_module(needed) else f"this host's Open MPI has no module {needed}"


def _refuse_algorithm(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``mpi_allreduce_algorithm``, or None."""
    if run["mpi_allreduce_algorithm"] != DEFAULT and run["mpi_collectives"] not in (DEFAULT, "tuned"):
        return f"it is the module tuned's; mpi_collectives: {run['mpi_collectives']} has its own"
    return _build_mpi_refusal("mpi_allreduce_algorithm")(run)


def _is_this_host(machine: Mapping[str, Any]) -> bool:
    """Whether a machine's ranks run on the host of the plan, so that its libraries and interfaces can be checked."""
    return "scheduler" not in machine and launchers.get_launcher(dict(machine)).on_own_hosts


def _refuse_missing_interface(name: str) -> str | None:
    """The reason why this host has no such interface, or None if it has."""
    interfaces = [interface for interface, _ in probe.list_interfaces()]
    has = ", ".join(interfaces)
    return None if name in interfaces else f"this host has no interface {name} with an IPv4 address; it has {has}"


declare(
    Parameter(
        "nccl_algorithm",
        Choice((DEFAULT, *ALGORITHMS)),
        "The algorithm of NCCL's collective operations (NCCL_ALGO); `default`: NCCL chooses by size of the message. "
        "Needs GPUs.",
        default=DEFAULT,
        default_in_papers=True,
        label="NCCL algorithm",
        **_build_nccl_refusals("nccl_algorithm", DEFAULT),
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
        **_build_nccl_refusals("nccl_protocol", DEFAULT),
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
        **_build_nccl_refusals("nccl_min_channels", 0),
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
        refuse=_refuse_interface,
        refuse_on=_refuse_interface_on,
        idle=explain_idle_communication,
    )
)

declare(
    Parameter(
        "allreduce_library",
        Choice((DEFAULT, *LIBRARIES)),
        "The library by which Horovod reduces gradients on CPUs: gloo starts the ranks by horovodrun, mpi by mpirun, "
        "on a machine with one of both launchers. `default`: that of the machine's launcher.",
        default=DEFAULT,
        default_in_papers=True,
        refuse=_refuse_library,
        refuse_on=_refuse_library_on,
        idle=explain_idle_communication,
    )
)

declare(
    Parameter(
        "mpi_collectives",
        Choice((DEFAULT, *MPI_MODULES)),
        "The module of Open MPI that does the collective operations which it can, the allreduce among them "
        "(OMPI_MCA_coll_..._priority); `default`: Open MPI chooses. Needs launcher mpirun, or allreduce_library: mpi.",
        default=DEFAULT,
        default_in_papers=True,
        label="MPI collectives",
        refuse=_build_mpi_refusal("mpi_collectives"),
        refuse_on=_build_mpi_refusal_on("mpi_collectives"),
        idle=explain_idle_communication,
    )
)

declare(
    Parameter(
        "mpi_allreduce_algorithm",
        Choice((DEFAULT, *MPI_ALGORITHMS)),
        "The allreduce algorithm of Open MPI's module tuned (OMPI_MCA_coll_tuned_allreduce_algorithm); `default`: Open "
        "MPI chooses by ranks and size. Needs launcher mpirun, or allreduce_library: mpi.",
        default=DEFAULT,
        default_in_papers=True,
        label="MPI allreduce algorithm",
        refuse=_refuse_algorithm,
        refuse_on=_build_mpi_refusal_on("mpi_allreduce_algorithm"),
        idle=explain_idle_communication,
    )
)
