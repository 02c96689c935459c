"""The only module that knows launchers: it builds the command line that starts a run's ranks."""

import math
import shutil

from study import environment
from study.errors import StudyError


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


def is_installed(machine):
    """Whether the machine's launcher is on PATH here."""
    return shutil.which(machine["launcher"], path=environment.search_path()) is not None


def command(ranks, machine, program):
    """The full command line, a list of strings, that starts ``program`` (a list) on ``ranks`` ranks.

    Raises `StudyError` where the launcher is not installed.
    """
    launcher = machine["launcher"]
    if not is_installed(machine):
        raise StudyError(f"the launcher '{launcher}' of the machine's file is not on PATH here")
    return [*LINES[launcher](ranks, machine), *program]


def _horovodrun(ranks, machine):
    return ["horovodrun", "--gloo", "-np", str(ranks), "-H", f"localhost:{ranks}"]


def _mpirun(ranks, machine):
    return ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", "-x", "PATH", "--tag-output"]


def _jsrun(ranks, machine):
    cores = str(machine["cores_per_rank"])
    sets_per_node = str(min(ranks, machine["ranks_per_node"]))
    return (
        ["jsrun", "-n", str(ranks), "-r", sets_per_node, "-a", "1", "-g", str(machine["gpus_per_rank"])]
        + ["-c", cores, "-d", "packed", "-b", f"packed:{cores}"]
    )  # fmt: skip


ON_THIS_HOST = {"horovodrun", "mpirun"}  # as we start them, without hosts
LINES = {"horovodrun": _horovodrun, "mpirun": _mpirun, "jsrun": _jsrun}
