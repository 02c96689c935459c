"""Capabilities of this host for a machine's runs: number of ranks, links of the laboratory.

The network laboratory's hosts are namespaces of this machine, see scripts/lab.sh.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from study.core import commands, cores
from study.core.errors import StudyError
from study.core.paths import SCRIPTS
from study.core.wording import format_count
from study.machines import launchers, run_layout

CORES, GPUS = "cores", "GPUs"

LAB_PROGRAM = str(SCRIPTS / "lab.sh")
LAUNCHING_HOST = "h0"


@dataclass(frozen=True)
class Capacity:
    """ranks: the most. why: what sets this number. shared: what more ranks would share; empty if the file sets it."""

    ranks: int
    why: str
    shared: str = ""

    @property
    def words(self) -> str:
        """``2 ranks (2 cores, 1 for each rank)``."""
        return f"{format_count(self.ranks, 'rank')} ({self.why})"


def compute_capacity(machine: Mapping[str, Any]) -> Capacity:
    """The largest number of ranks that a machine carries, and what sets this number.

    Raises:
        StudyError: GPUs are needed, and this host's cannot be counted.
    """
    by_file = Capacity(launchers.count_ranks_by_file(machine), "as its file says")
    if not starts_ranks_here(machine):
        return by_file
    most = launchers.count_most_ranks(machine)
    if most >= by_file.ranks:
        return by_file
    if machine["gpus_per_rank"]:
        return Capacity(most, "by the GPUs that CUDA shows here", GPUS)
    return Capacity(
        most,
        f"{format_count(f'{cores.count_usable_cores():g}', 'core')}, {machine['cores_per_rank']} for each rank",
        CORES,
    )


def find_capacity(machine: Mapping[str, Any]) -> Capacity | None:
    """The `compute_capacity` of a machine, or None where it cannot be counted."""
    try:
        return compute_capacity(machine)
    except StudyError:
        return None


def starts_ranks_here(machine: Mapping[str, Any]) -> bool:
    """Whether a machine's ranks are started on this host, whose cores and GPUs can be counted."""
    return "scheduler" not in machine and not machine.get("hosts") and launchers.get_launcher(machine).on_own_hosts


def count_cores_needed(parameters: Mapping[str, Any], machine: Mapping[str, Any]) -> int:
    """Cores that the processes of a run need where all are on this host, a chief and servers among them.

    parameters: {grid key: value} of the run.
    """
    started = run_layout.list_roles(parameters["strategy"], parameters["gpus"], parameters["servers"])
    return len(started) * count_cores_of_rank(parameters, machine)


def count_cores_of_rank(parameters: Mapping[str, Any], machine: Mapping[str, Any]) -> int:
    """Cores that each rank is meant to have: ``cores_per_rank`` of the machine's file, or more if it has more threads.

    parameters: {grid key: value} of the run; a key that an older run lacks has its default.
    """
    own, communication = parameters.get("intra_op_threads", 0), parameters.get("communication_cores", 0)
    threads = own + communication if own else machine["cores_per_rank"]
    return int(max(machine["cores_per_rank"], threads, parameters.get("inter_op_threads", 0)))


def refuse_outside_laboratory(machine: dict[str, Any]) -> str | None:
    """Why nothing can be started on the machine from here, or None: its hosts exist for the laboratory only."""
    if not machine.get("laboratory") or socket.gethostname() == LAUNCHING_HOST:
        return None
    return (
        f"laboratory: the hosts of {machine['name']} are reached from inside the laboratory only; as root: "
        f"scripts/lab.sh up {len(machine['hosts'])}, then scripts/lab.sh exec .venv/bin/snakemake --profile lab ..."
    )


def refuse_rate(link_mbit_per_s: int, machine: dict[str, Any]) -> str | None:
    """Why a run's links cannot have that rate on the machine, or None."""
    if link_mbit_per_s and not machine.get("laboratory"):
        return (
            f"link_mbit_per_s: {link_mbit_per_s} needs the laboratory (machine: lab); elsewhere links are as they are"
        )
    return None


def set_link_rate(link_mbit_per_s: int) -> None:
    """Limit the links of all hosts, in both directions; 0 removes the limit."""
    rate = f"{link_mbit_per_s}mbit" if link_mbit_per_s else "none"
    try:
        process = commands.run_program([LAB_PROGRAM, "rate", rate], 60)
    except subprocess.TimeoutExpired:
        raise StudyError(f"the laboratory's links cannot be limited to {rate}: lab.sh rate gives no answer") from None
    if process.returncode != 0:
        raise StudyError(f"the laboratory's links cannot be limited to {rate}: {process.stderr.strip()}")
