"""The only module that knows launchers: it builds the command line that starts a run's ranks."""

import math
import shlex
import shutil
import sys

from study.core import environment
from study.core.errors import StudyError
from study.core.paths import ROOT

HOROVODRUN = str(ROOT / "scripts" / "horovodrun.py")


def nodes(ranks, machine):
    """Nodes that ``ranks`` ranks need: the ceiling of ranks by ranks a node."""
    return math.ceil(ranks / machine["ranks_per_node"])


def refusal(ranks, machine):
    """Why the machine cannot run that many ranks, or None where it can."""
    needed = nodes(ranks, machine)
    if machine["launcher"] in ON_THIS_HOST and machine["nodes"] > 1:
        return f"nodes is {machine['nodes']}, but {machine['launcher']} starts ranks on this host only; it must be 1"
    if needed <= machine["nodes"]:
        return None
    return (
        f"{ranks} ranks need {needed} nodes of {machine['ranks_per_node']} ranks; "
        f"the machine's file allows {machine['nodes']}"
    )


def is_installed(program):
    """Whether a program is on PATH here."""
    return shutil.which(program, path=environment.search_path()) is not None


def command(ranks, machine, program):
    """The full command line, a list of strings, that starts ``program`` (a list) on ``ranks`` ranks.

    Raises `StudyError` where the launcher is not installed.
    """
    launcher = machine["launcher"]
    if not is_installed(launcher):
        raise StudyError(f"the launcher '{launcher}' of the machine's file is not on PATH here")
    return [*LINES[launcher](ranks, machine), *program]


def onto_a_node(machine):
    """What a job's script puts before a command that must run on a node: nothing where the script itself is on one."""
    launcher = machine["launcher"]
    return shlex.join(LINES[launcher](1, machine)) if launcher in FROM_A_SERVICE_NODE else ""


def _horovodrun(ranks, machine):
    return [sys.executable, HOROVODRUN, "--gloo", "-np", str(ranks), "-H", f"localhost:{ranks}"]


def _mpirun(ranks, machine):
    return ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", "-x", "PATH", "--tag-output"]


def _jsrun(ranks, machine):
    """LSF: a resource set a rank, packed onto as few nodes as possible (icpp2019, section 4.1)."""
    cores = str(machine["cores_per_rank"])
    return (
        ["jsrun", "-n", str(ranks), "-r", str(_on_a_node(ranks, machine)), "-a", "1"]
        + ["-g", str(machine["gpus_per_rank"]), "-c", cores, "-d", "packed", "-b", f"packed:{cores}"]
    )  # fmt: skip


def _aprun(ranks, machine):
    """Cobalt on a Cray: as many processes as cores to a rank, placed one after the other (sc18, section III)."""
    return (
        ["aprun", "-n", str(ranks), "-N", str(_on_a_node(ranks, machine)), "-d", str(machine["cores_per_rank"])]
        + ["-j", "1", "-cc", "depth", *_variables("-e", machine)]
    )  # fmt: skip


def _srun(ranks, machine):
    """Slurm. ``--overlap``: the job's own step, in which Snakemake runs, holds the cores already."""
    gpus = ["--gpus-per-task", str(machine["gpus_per_rank"])] if machine["gpus_per_rank"] else []
    return (
        ["srun", "--overlap", "--nodes", str(nodes(ranks, machine)), "--ntasks", str(ranks)]
        + ["--ntasks-per-node", str(_on_a_node(ranks, machine)), "--cpus-per-task", str(machine["cores_per_rank"])]
        + [*gpus, "--label", "--export", "ALL"]
    )  # fmt: skip


def _mpiexec(ranks, machine):
    """PBS Pro with Cray's PALS."""
    return (
        ["mpiexec", "-n", str(ranks), "--ppn", str(_on_a_node(ranks, machine))]
        + ["--depth", str(machine["cores_per_rank"]), "--cpu-bind", "depth", *_variables("--env", machine)]
    )  # fmt: skip


def _on_a_node(ranks, machine):
    return min(ranks, machine["ranks_per_node"])


def _variables(option, machine):
    assignments = [f"{name}={value}" for name, value in sorted(machine.get("environment", {}).items())]
    return [word for assignment in assignments for word in (option, assignment)]


ON_THIS_HOST = {"horovodrun", "mpirun"}  # as we start them, without hosts
FROM_A_SERVICE_NODE = {"jsrun", "aprun"}  # where LSF on Summit and Cobalt run a job's script
LINES = {"horovodrun": _horovodrun, "mpirun": _mpirun, "jsrun": _jsrun, "aprun": _aprun, "srun": _srun,
         "mpiexec": _mpiexec}  # fmt: skip
