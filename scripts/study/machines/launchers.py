"""Launchers build the command line that starts a run's ranks, one registered class each; and what they obey.

They obey variables of batch jobs: those of a job that is not the machine's, or that is over, must steer no run.
"""

import math
import os
import re
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from study.core import cores, environment
from study.core.errors import StudyError
from study.core.paths import SCRIPTS
from study.core.registry import Registry
from study.instruments import gpus
from study.instruments.power.readings import Unavailable
from study.instruments.power.sensors import nvml
from study.machines import remote, run_layout
from study.machines.run_layout import Links

HOROVODRUN = str(SCRIPTS / "horovodrun.py")
PROCESSES = str(SCRIPTS / "run_processes.py")
# Prefix that launchers put before each line of a rank: ``[1]<stdout>:``, mpirun ``[1,0]<stdout>:``, srun ``1: ``.
TAG = re.compile(r"^(?:\[(?:\d+,)?|\s*)(?P<rank>\d+)(?:\]<std(?:out|err)>:\s?|: )")

LAUNCHERS: Registry[type["Launcher"]] = Registry("launcher")

# Variables of each batch system's jobs and of the launchers in them, by their prefixes.
JOB_PREFIXES: dict[str, tuple[str, ...]] = {
    "slurm": ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_"),
    "pbs": ("PBS_", "PALS_"),
    "lsf": ("LSB_", "LSF_PM_", "JSM_"),
    "cobalt": ("COBALT_", "ALPS_"),
    "flux": ("FLUX_",),
}
# Of a process that a launcher has started; set in the job's own processes only.
LAUNCHER_PREFIXES = ("PMI_", "PMIX_", "PALS_", "JSM_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "OMPI_APP_CTX_",
                "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_FILE_LOCATION",
                "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "HYDRA_", "MV2_COMM_WORLD_")  # fmt: skip

# Of the shell, by which Slurm's commands leave jobs out or write times otherwise (squeue(1), sacct(1)).
ANSWER_PREFIXES = ("SQUEUE_", "SLURM_TIME_FORMAT")

# Slurm's variables that say which job this is, on which nodes (for mpirun), and where Slurm is (srun(1)). The others of
# a job are defaults for the commands in it: an srun would take them, or those of a job around it, for its own.
SLURM_JOB_NAMES = frozenset({
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_TASKS_PER_NODE",
    "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_CONF", "SLURM_CONF_SERVER",
})  # fmt: skip
SLURM_COMMAND_PREFIXES = ("SLURM_", "SRUN_", "SBATCH_")


class Launcher(ABC):
    """One launcher.

    The ranks inherit the environment of the process that executes the command line, so no launcher passes variables.
    """

    on_own_hosts = False  # whether it starts ranks on this host, or on the machine's ``hosts`` over ssh
    from_a_service_node = False  # whether a job's script runs on a node that has no ranks
    places_itself = False  # whether several in one batch job use different nodes
    unanswered: re.Pattern[str] | None = None  # what it says if the batch system did not let it start the ranks
    in_part: re.Pattern[str] | None = None  # what it says if it could not start all ranks, and ended the others
    rank_variables: tuple[str, ...] = ()  # the variables, one of which tells a process its rank
    is_ours = False  # whether it is a script of this project, which need not be on PATH
    of_one_host = False  # whether it cannot start ranks on other hosts
    starts_horovod = True  # whether Horovod's ranks find each other under it
    ends_together: tuple[str, ...] = ()  # options with which it ends all ranks if one fails, as others do without

    @abstractmethod
    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """The arguments before the program.

        machine: the machine's file; with ``links``, a `Links`, if ranks are placed on other hosts.
        """


def count_nodes(ranks: int, machine: dict[str, Any]) -> int:
    """Number of nodes for ``ranks`` ranks: ranks divided by ranks per node, rounded up; of hosts, as many as needed."""
    if machine.get("hosts"):
        return len(run_layout.place_ranks(ranks, dict(machine["hosts"])))
    return math.ceil(ranks / machine["ranks_per_node"])


def get_launcher(machine: Mapping[str, Any]) -> Launcher:
    """The machine's launcher."""
    return LAUNCHERS[machine["launcher"]]()


def refuse_ranks(ranks: int, machine: dict[str, Any]) -> str | None:
    """The reason why the machine cannot run that many ranks, or None."""
    own = get_launcher(machine).on_own_hosts
    if machine.get("hosts"):
        slots = sum(machine["hosts"].values())
        if get_launcher(machine).of_one_host:
            return f"{machine['launcher']} starts ranks on this host only; leave hosts out, or use another launcher"
        if not own:
            return f"{machine['launcher']} places ranks itself; hosts are for {' and '.join(_list_own())}"
        return None if ranks <= slots else f"{ranks} ranks are more than the {slots} slots of the machine's hosts"
    if own and machine["nodes"] > 1:
        return (
            f"nodes is {machine['nodes']}, but without hosts {machine['launcher']} starts ranks on this host only; "
            "list the hosts with their slots under hosts, or set nodes to 1"
        )
    needed = count_nodes(ranks, machine)
    if needed <= machine["nodes"]:
        return None
    return (
        f"{ranks} ranks need {needed} nodes of {machine['ranks_per_node']} ranks; "
        f"the machine's file allows {machine['nodes']}"
    )


def count_most_ranks(machine: Mapping[str, Any]) -> int:
    """The largest number of ranks that the machine carries: of its cores or GPUs, as its file says.

    On this host it is also at most what this process may use: its cores, or the GPUs that NVML sees.

    Raises:
        StudyError: GPUs are needed, and this host's cannot be counted.
    """
    by_file = count_ranks_by_file(machine)
    if machine.get("hosts") or not get_launcher(machine).on_own_hosts:
        return by_file
    carried = (
        _count_gpus(machine)
        if machine["gpus_per_rank"]
        else int(cores.count_usable_cores()) // machine["cores_per_rank"]
    )
    return max(1, min(by_file, carried))


def count_ranks_by_file(machine: Mapping[str, Any]) -> int:
    """The largest number of ranks that the machine's file allows."""
    if machine.get("hosts"):
        return sum(machine["hosts"].values())
    return int(machine["nodes"] * machine["ranks_per_node"])


def _count_gpus(machine: Mapping[str, Any]) -> int:
    """The GPUs that CUDA shows to a rank started here; raises `StudyError` if they cannot be counted."""
    try:
        visible = gpus.list_visible_gpus({**os.environ, **machine.get("environment", {})}, nvml.import_library())
    except Unavailable as error:
        raise StudyError(f"the GPUs of this host cannot be counted: {error}; give numbers of ranks") from None
    if visible is None:
        raise StudyError("the GPUs of this host cannot be counted: NVML does not list them; give numbers of ranks")
    return len(visible)


def count_started(strategy: str, ranks: int, servers: int, machine: dict[str, Any]) -> int:
    """The number of processes that the machine's launcher starts for a run, each in a rank's place on its node.

    On own hosts they are the ranks: a chief and servers are started beside them. Elsewhere all have their roles by
    rank, see `run_layout.list_roles_by_rank`.
    """
    if get_launcher(machine).on_own_hosts:
        return ranks
    return len(run_layout.list_roles_by_rank(strategy, ranks, servers, machine["ranks_per_node"]))


def _list_own() -> list[str]:
    """The launchers that start ranks on listed hosts."""
    return sorted(name for name, each in LAUNCHERS.items() if each.on_own_hosts and not each.of_one_host)


def is_installed(program: str) -> bool:
    """Whether a program is on PATH here, or is a launcher of ours."""
    if program in LAUNCHERS and LAUNCHERS[program].is_ours:
        return True
    return shutil.which(program, path=environment.build_search_path()) is not None


def make_command(ranks: int, machine: dict[str, Any], program: list[str], ends_together: bool = False) -> list[str]:
    """The full command line that starts ``program`` on ``ranks`` ranks.

    ends_together: whether the launcher must end all ranks if one fails; MPI does so by itself.

    Raises:
        StudyError: the launcher is not installed.
    """
    launcher = machine["launcher"]
    if not is_installed(launcher):
        raise StudyError(f"the launcher '{launcher}' of the machine's file is not on PATH here")
    options = get_launcher(machine).ends_together if ends_together else ()
    return [*get_launcher(machine).line(ranks, machine), *options, *program]


def with_one_process_a_node(machine: dict[str, Any]) -> dict[str, Any]:
    """The machine's file as for ranks that each have a whole node: for programs that start the node's ranks."""
    most = machine["ranks_per_node"]
    hosts = {"hosts": dict.fromkeys(dict(machine["hosts"]), 1)} if machine.get("hosts") else {}
    each = {name: machine[name] * most for name in ("cores_per_rank", "gpus_per_rank")}
    return {**machine, **each, **hosts, "ranks_per_node": 1}


def make_node_prefix(machine: dict[str, Any]) -> str:
    """The arguments before a command that must run on a node; none if the job's script itself runs on a node."""
    launcher = get_launcher(machine)
    return shlex.join(launcher.line(1, machine)) if launcher.from_a_service_node else ""


@LAUNCHERS.register("horovodrun")
class Horovodrun(Launcher):
    """Horovod's own launcher, over Gloo, without MPI."""

    on_own_hosts = True
    rank_variables = ("HOROVOD_RANK",)

    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """All ranks on this host, or host by host over ssh."""
        links: Links | None = machine.get("links")
        connected = []
        if links:
            interfaces = ",".join(f"{host}={name}" for host, name in links.interfaces.items())
            connected = ["--interfaces", interfaces, "--network-interfaces", links.here]
        slots = _format_slots(ranks, machine)
        return [sys.executable, HOROVODRUN, *connected, "--gloo", "-np", str(ranks), "-H", slots]


@LAUNCHERS.register("mpirun")
class Mpirun(Launcher):
    """Open MPI."""

    on_own_hosts = True
    rank_variables = ("OMPI_COMM_WORLD_RANK",)

    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """All ranks on this host, or host by host over ssh; then each host's daemon gets the run's variables."""
        line = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", "-x", "PATH", "--tag-output"]
        links: Links | None = machine.get("links")
        if not links:
            return line
        agent = shlex.join([sys.executable, "-I", "-S", remote.__file__])
        settings = {
            "plm_rsh_agent": agent,
            "plm_rsh_no_tree_spawn": "1",  # this host starts all daemons, so that each one's guard hears from here
            "btl_tcp_if_include": links.network,
            "oob_tcp_if_include": links.network,
        }
        options = [part for name, value in settings.items() for part in ("--mca", name, value)]
        return [*line, "--leave-session-attached", *options, "-H", _format_slots(ranks, machine)]


@LAUNCHERS.register("processes")
class Processes(Launcher):
    """Processes on this host, for programs that need neither Horovod nor MPI."""

    on_own_hosts = True
    rank_variables = ("RANK",)
    is_ours = True
    starts_horovod = False
    of_one_host = True

    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """Our own script starts them."""
        return [sys.executable, PROCESSES, str(ranks)]


@LAUNCHERS.register("jsrun")
class Jsrun(Launcher):
    """LSF on Summit: one resource set per rank, packed onto as few nodes as possible (icpp2019, section 4.1)."""

    from_a_service_node = True
    places_itself = True
    rank_variables = ("JSM_NAMESPACE_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")

    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """A resource set has the GPU and the cores of its rank."""
        cores = str(machine["cores_per_rank"])
        return (
            ["jsrun", "-n", str(ranks), "-r", str(_count_on_node(ranks, machine)), "-a", "1"]
            + ["-g", str(machine["gpus_per_rank"]), "-c", cores, "-d", "packed", "-b", f"packed:{cores}"]
        )  # fmt: skip


@LAUNCHERS.register("aprun")
class Aprun(Launcher):
    """Cobalt on a Cray: ranks are placed in order (icpp2019, section 2.3.2)."""

    from_a_service_node = True
    places_itself = True
    rank_variables = ("ALPS_APP_PE",)

    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """One thread per core, as many cores as the rank has."""
        return (
            ["aprun", "-n", str(ranks), "-N", str(_count_on_node(ranks, machine)), "-d", str(machine["cores_per_rank"])]
            + ["-j", "1", "-cc", "depth"]
        )  # fmt: skip


@LAUNCHERS.register("srun")
class Srun(Launcher):
    """Slurm. ``--overlap``: a step of the job in which Snakemake runs, as of salloc, already holds the cores."""

    places_itself = True
    # slurmctld restarts, or is busy; or it is ending this job.
    unanswered = re.compile(
        r"^srun: error: .*(contact slurm controller|Socket timed out|ommunication connection failure|Connection refused"
        r"|Zero Bytes were transmitted|Invalid job id specified|already completing or completed)"
    )

    in_part = re.compile(r"^srun: error: Application launch failed")  # a node is gone
    rank_variables = ("SLURM_PROCID",)
    ends_together = ("--kill-on-bad-exit=1",)

    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """The whole environment is exported, which is Slurm's default unless a site changed it.

        A rank sees all GPUs of its node and takes the one of its local rank. Bound to its own, as Slurm does otherwise
        (srun(1), ``--gpu-bind``), the GPUs of a node cannot reach each other by CUDA IPC, so that NCCL is slow in
        silence (SchedMD's bug 17793), and the sampler of a node reads the first rank's GPU only.
        """
        gpus = []
        if machine["gpus_per_rank"]:
            gpus = ["--gpus-per-task", str(machine["gpus_per_rank"]), "--gpu-bind", "none"]
        return (
            ["srun", "--overlap", "--nodes", str(count_nodes(ranks, machine)), "--ntasks", str(ranks)]
            + ["--ntasks-per-node", str(_count_on_node(ranks, machine))]
            + ["--cpus-per-task", str(machine["cores_per_rank"]), *gpus, "--label", "--export", "ALL"]
        )  # fmt: skip


@LAUNCHERS.register("flux")
class FluxRun(Launcher):
    """``flux run`` in a batch job of Flux (flux-run(1))."""

    places_itself = True
    rank_variables = ("FLUX_TASK_RANK",)

    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """Ranks are distributed evenly over the nodes, each bound to its cores."""
        gpus = [f"--gpus-per-task={machine['gpus_per_rank']}"] if machine["gpus_per_rank"] else []
        return (
            ["flux", "run", f"--nodes={count_nodes(ranks, machine)}", f"--ntasks={ranks}"]
            + [f"--cores-per-task={machine['cores_per_rank']}", *gpus, "--setopt=cpu-affinity=per-task", "--label-io"]
        )  # fmt: skip


@LAUNCHERS.register("mpiexec")
class Mpiexec(Launcher):
    """PBS Pro with Cray's PALS; several at once would use the same nodes."""

    # PALS', MPICH's, Open MPI's
    rank_variables = ("PALS_RANKID", "PMI_RANK", "OMPI_COMM_WORLD_RANK")

    def line(self, ranks: int, machine: dict[str, Any]) -> list[str]:
        """One process per rank, bound to as many cores as the rank has."""
        return (
            ["mpiexec", "-n", str(ranks), "--ppn", str(_count_on_node(ranks, machine))]
            + ["--depth", str(machine["cores_per_rank"]), "--cpu-bind", "depth"]
        )  # fmt: skip


def _format_slots(ranks: int, machine: dict[str, Any]) -> str:
    """``-H`` of horovodrun and mpirun."""
    placed = run_layout.place_ranks(ranks, dict(machine["hosts"])) if machine.get("links") else {"localhost": ranks}
    return ",".join(f"{host}:{slots}" for host, slots in placed.items())


def _count_on_node(ranks: int, machine: dict[str, Any]) -> int:
    return min(ranks, machine["ranks_per_node"])


def remove_answer_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without those of `ANSWER_PREFIXES`: Slurm's commands then answer in full, and as documented."""
    return {name: value for name, value in variables.items() if not name.startswith(ANSWER_PREFIXES)}


def remove_other_jobs(variables: Mapping[str, str], machine: Mapping[str, Any]) -> dict[str, str]:
    """``variables`` without those of batch jobs that are not the machine's: a shell keeps those of a job that is over.

    Launchers obey them: Open MPI would start ranks on the nodes of ``SLURM_NODELIST``.
    """
    own = machine.get("scheduler")
    others = [prefix for name, prefixes in JOB_PREFIXES.items() if name != own for prefix in prefixes]
    others = [prefix for prefix in others if prefix not in JOB_PREFIXES.get(own or "", ())]
    if own is None:
        others += [*LAUNCHER_PREFIXES, "STUDY_JOB_"]
    return {name: value for name, value in variables.items() if not name.startswith(tuple(others))}


def remove_slurm_defaults(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without the defaults for commands that a job of Slurm has; those of no job as they are."""
    if "SLURM_JOB_ID" not in variables:
        return dict(variables)
    return {
        name: value
        for name, value in variables.items()
        if name in SLURM_JOB_NAMES or not name.startswith(SLURM_COMMAND_PREFIXES)
    }
