"""Jobs in a batch system's queue: their walltime and size, small runs packed into one job, limits, the current job.

Runs that share a job are one Snakemake group: those of one node count, and of one size of the job if their walltime
needs a larger job than the smallest. Packed runs start together, each on its own nodes of the job; the launcher places
them. If a job has too few of them to fill its size, it requests that size anyway.
"""

import argparse
import collections
import dataclasses
import datetime
import math
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from study.core import commands
from study.core.errors import StudyError
from study.core.wording import format_count
from study.machines import launchers
from study.machines.batch_systems import BATCH_SYSTEMS
from study.machines.launchers import remove_answer_variables, remove_other_jobs

MARGIN_MIN = 5  # added to a run's time limit for its job's walltime: to start, to end, and to write the outcome
LARGEST_GROWTH = 2  # times the queue's smallest job: in a larger one, most nodes would be idle

LOCAL, GENERIC = "local", "cluster-generic"  # executors of Snakemake
LAST_S = 90  # last part of a job, before which a run must have ended
LOST_JOB = "was lost (no exit status)"  # in the message of a run whose job was killed, preempted, or lost its node
UNSET = "start again from a new shell, in which the variables of that job are not set, or in a new job"
TRIES = 2  # jobs per run if jobs are lost; one more job then records this


def compute_job_minutes(limit_s: float) -> int:
    """Walltime (minutes) of the batch job of a run that may take ``limit_s`` seconds."""
    return math.ceil(limit_s / 60) + MARGIN_MIN


def compute_limit_s(minutes: float) -> float:
    """The time limit (s) of a run in a job of so many minutes."""
    return 60.0 * (minutes - MARGIN_MIN)


def get_smallest_nodes(machine: dict[str, Any]) -> int:
    """The fewest nodes of a job; 1 without a rule."""
    return int(machine.get("queue", {}).get("smallest_nodes", 1))


def find_longest_minutes(nodes: int, machine: dict[str, Any]) -> int | None:
    """The longest walltime (minutes) of a job on so many nodes; None without a rule."""
    rules = machine.get("queue", {}).get("longest_minutes", [])
    applicable = [rule for rule in rules if rule["from_nodes"] <= nodes]  # in whatever order the file lists them
    return max(applicable, key=lambda rule: rule["from_nodes"])["minutes"] if applicable else None


def find_longest_s(nodes: int, machine: dict[str, Any]) -> float:
    """The longest time limit (s) of a run in a job on so many nodes; infinite without a rule."""
    longest = find_longest_minutes(nodes, machine)
    return compute_limit_s(longest) if longest else math.inf


def choose_job_nodes(nodes: int, minutes: int, machine: dict[str, Any]) -> int | None:
    """The fewest nodes, at least ``nodes``, of a job that may have so many minutes; None if no job may.

    Only what is too small for a job of its own gets more nodes than it needs, and not more than `LARGEST_GROWTH` times
    the smallest job.
    """
    smallest = get_smallest_nodes(machine)
    own = max(nodes, smallest)
    larger = [rule["from_nodes"] for rule in machine.get("queue", {}).get("longest_minutes", [])]
    most = max(own, min(LARGEST_GROWTH * smallest, machine["nodes"])) if smallest > 1 else own
    for size in sorted({own, *(each for each in larger if own < each <= most)}):
        longest = find_longest_minutes(size, machine)
        if longest is None or minutes <= longest:
            return size
    return None


@dataclasses.dataclass(frozen=True)
class Timed:
    """A run or a loading measurement, as far as its batch job is concerned.

    ranks: that the launcher starts, see `study.machines.launchers.count_started`. limit_s: its time limit (s).
    """

    ranks: int
    limit_s: float

    @property
    def minutes(self) -> int:
        """Walltime (minutes) of its job."""
        return compute_job_minutes(self.limit_s)


def name_group(timed: Timed, machine: dict[str, Any]) -> str | None:
    """Snakemake's group of a run; None if it is large enough for its own batch job."""
    nodes, smallest = launchers.count_nodes(timed.ranks, machine), get_smallest_nodes(machine)
    if nodes >= smallest:
        return None
    size = _choose_size(timed, machine)
    return f"nodes_{nodes}" if size == smallest else f"nodes_{nodes}_of_{size}"


def _choose_size(timed: Timed, machine: dict[str, Any]) -> int:
    """Nodes of the job that a small run needs; a run that is too long for any job is refused elsewhere."""
    nodes, smallest = launchers.count_nodes(timed.ranks, machine), get_smallest_nodes(machine)
    return choose_job_nodes(nodes, timed.minutes, machine) or smallest


def has_groups(machine: dict[str, Any]) -> bool:
    """Whether some number of ranks is too few for a batch job of its own."""
    return get_smallest_nodes(machine) > 1


def parse_components(arguments: Sequence[str]) -> dict[str, int]:
    """``--group-components`` in Snakemake's arguments, {group: runs of it in a job}: Snakemake provides it too late."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--group-components", nargs="+", default=[])
    options, _ = parser.parse_known_args(arguments)
    return {name: int(number) for name, _, number in (entry.partition("=") for entry in options.group_components)}


def count_runs_per_job(timed: Timed, machine: dict[str, Any], components: Mapping[str, int]) -> int:
    """Number of such runs in one batch job. components: of Snakemake's groups, a dict."""
    name = name_group(timed, machine)
    return components.get(name, 1) if name else 1


def list_jobs(timed: Iterable[Timed], machine: dict[str, Any], components: Mapping[str, int]) -> list[tuple[int, int]]:
    """(nodes, minutes) of each batch job of a study; a packed one is counted as long as its group's longest run."""
    groups: dict[str | None, list[Timed]] = collections.defaultdict(list)
    for each in timed:
        groups[name_group(each, machine)].append(each)
    sizes = [(launchers.count_nodes(each.ranks, machine), each.minutes) for each in groups.pop(None, ())]
    for name, members in groups.items():
        most, minutes = components.get(str(name), 1), max(each.minutes for each in members)
        nodes = launchers.count_nodes(members[0].ranks, machine)
        chunks = [min(most, len(members) - first) for first in range(0, len(members), most)]
        sizes += [(pad_nodes(chunk * nodes, minutes, machine), minutes) for chunk in chunks]
    return sizes


def pad_nodes(nodes: int, minutes: int, machine: dict[str, Any]) -> int:
    """Nodes that a job of packed runs on so many nodes requests, for a walltime of so many minutes."""
    return choose_job_nodes(nodes, minutes, machine) or max(nodes, get_smallest_nodes(machine))


def advise_components(timed: Iterable[Timed], machine: dict[str, Any], components: Mapping[str, int]) -> dict[str, int]:
    """{group: runs of it in a job} that pack all small runs: as given, and for the others as many as fill a job.

    Empty if there are none, or if the launcher does not place packed runs.
    """
    if not launchers.get_launcher(machine).places_itself:
        return dict(components)
    advice = dict(components)
    for each in sorted(set(timed), key=lambda each: (each.ranks, each.limit_s)):
        name = name_group(each, machine)
        if name and advice.get(name, 1) == 1:
            advice[name] = math.ceil(_choose_size(each, machine) / launchers.count_nodes(each.ranks, machine))
    return advice


def format_components(components: Mapping[str, int]) -> str:
    """Snakemake's arguments for such groups."""
    return " ".join(["--group-components", *(f"{name}={number}" for name, number in components.items())])


def refuse_run(timed: Timed, machine: dict[str, Any], components: Mapping[str, int]) -> str | None:
    """The rule of the machine's queue that a run would break, or None.

    components: how many runs of a group share a job, see `study.machines.queues`.
    """
    nodes = launchers.count_nodes(timed.ranks, machine)
    together = count_runs_per_job(timed, machine, components)
    if name_group(timed, machine):
        if together == 1:
            size = f"a run of {format_count(timed.ranks, 'rank')} has {format_count(nodes, 'node')}"
            return f"queue.smallest_nodes: {size}; a job must have at least {get_smallest_nodes(machine)}"
        if not launchers.get_launcher(machine).places_itself:
            able = sorted(name for name, launcher in launchers.LAUNCHERS.items() if launcher.places_itself)
            return f"launcher: runs packed into one job need one of {', '.join(able)}"
        if together * nodes > machine["nodes"]:
            return f"nodes: {together} runs of {nodes} nodes in one job are more than {machine['nodes']} nodes"
        nodes = pad_nodes(together * nodes, timed.minutes, machine)
    longest = find_longest_minutes(nodes, machine)
    if longest and timed.minutes > longest:
        return (
            f"queue.longest_minutes: {nodes} nodes may run for {longest} minutes, a job takes {timed.minutes} "
            f"(the run's time limit and {MARGIN_MIN} minutes more)"
        )
    return None


def refuse_executor(executor: str, machine: Mapping[str, Any]) -> str | None:
    """Why an executor of Snakemake would send jobs elsewhere than the machine's file says; None if it does not.

    executor: its name. ``local`` is right inside of a batch job, which `study.workflow.start` looks at.
    """
    scheduler = machine.get("scheduler")
    expected = {None: [LOCAL], "slurm": [GENERIC, "slurm"]}.get(scheduler, [GENERIC])
    if executor in (LOCAL, *expected):
        return None
    has = f"has the scheduler {scheduler}" if scheduler else "has no scheduler: its runs train on this host"
    return f"executor {executor}: machine {machine['name']} {has}, which needs executor {' or '.join(expected)}"


def sum_node_hours(jobs: Iterable[tuple[int, int]]) -> float:
    """The largest number of node-hours that jobs can use. jobs: (nodes, minutes) of each."""
    return sum(nodes * minutes for nodes, minutes in jobs) / 60


def make_resources(
    ranks: Callable[[Any], int], machine: dict[str, Any], limit_s: Callable[..., float]
) -> dict[str, Any]:
    """The resources of a job for Snakemake: names to values or functions of wildcards; empty without a batch system.

    ranks: a function from wildcards to the job's ranks. limit_s: one from wildcards and attempt to the time limit (s)
    of what runs in it. ``scripts/cluster.py`` reads them; of packed runs, Snakemake adds up nodes and tasks.
    """
    if "scheduler" not in machine:
        return {}
    return {
        "machine": machine["name"],
        "nodes": lambda wildcards: launchers.count_nodes(ranks(wildcards), machine),
        "tasks": ranks,
        "runtime": lambda wildcards, attempt: compute_job_minutes(limit_s(wildcards, attempt)),
    }


def read_job(variables: Mapping[str, str], machine: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """The current batch job, ``{"id": text, "ends_s": seconds since 1970 or None}``; None outside of a batch job.

    With ``options``, the machine's ``job_options`` with which it was submitted, if that is known. variables: the
    environment. ``STUDY_JOB_ENDS`` and ``STUDY_JOB_OPTIONS`` are set by ``scripts/cluster.py``, the others by batch
    systems. machine: whose jobs count; on one without a batch system none does. Raises `StudyError` if Slurm does not
    know the job any more.
    """
    if machine is not None:
        if "scheduler" not in machine:
            return None
        variables = remove_other_jobs(variables, machine)
    names = [system.job_id_variable for system in BATCH_SYSTEMS.values()]
    ids = [variables[name] for name in names if variables.get(name)]
    ends: str | float | None = variables.get("STUDY_JOB_ENDS") or variables.get("SLURM_JOB_END_TIME")
    if ends is None and variables.get("SLURM_JOB_ID"):
        ends = _ask_slurm_for_end(variables["SLURM_JOB_ID"], variables)
    if not ids and ends is None:
        return None
    try:
        options = variables.get("STUDY_JOB_OPTIONS")
        submitted = {} if options is None else {"options": shlex.split(options)}
        return {"id": ids[0] if ids else None, "ends_s": None if ends is None else float(ends), **submitted}
    except ValueError as error:
        raise StudyError(
            f"STUDY_JOB_ENDS, SLURM_JOB_END_TIME or STUDY_JOB_OPTIONS is not as a batch job has it: {error}; unset it"
        ) from None


def _ask_slurm_for_end(job_id: str, variables: Mapping[str, str]) -> float | None:
    """The end (s) of a Slurm job, which versions before 23 do not export; None if it cannot be determined."""
    line = ["squeue", "--noheader", "--jobs", job_id, "--format", "%e"]
    try:
        process = commands.run_program(line, 60, remove_answer_variables(variables))
        if "Invalid job id" in process.stderr:
            raise StudyError(f"SLURM_JOB_ID: Slurm does not know the job {job_id}: it is over; {UNSET}")
        return datetime.datetime.fromisoformat(process.stdout.strip()).timestamp()
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None


def compute_seconds_left(job: dict[str, Any] | None, now: float) -> float | None:
    """Time limit (s) of a run in a `read_job`; None if the job's end is unknown. now: the current time (s).

    Raises `StudyError` if the job is over, or so nearly that no run can start in it.
    """
    if job is None or job["ends_s"] is None:
        return None
    remaining: float = job["ends_s"] - now
    if remaining > LAST_S:
        return remaining - LAST_S
    name, variables = f"the batch job {job['id'] or ''}".strip(), "STUDY_JOB_ENDS or SLURM_JOB_END_TIME"
    if remaining <= 0:
        raise StudyError(f"{variables}: {name} ended {-remaining:.0f} s ago; {UNSET}")
    why = f"{name} ends in {remaining:.0f} s, and a run must end {LAST_S} s before; request a longer walltime"
    raise StudyError(f"{variables}: {why}")


def is_last_moment(job: dict[str, Any] | None, now: float) -> bool:
    """Whether a signal at time ``now`` (s) is due to the job's walltime."""
    return job is not None and job["ends_s"] is not None and now > job["ends_s"] - LAST_S


def describe_lost_job(job: dict[str, Any] | None, last_heartbeat_ns: int) -> tuple[str, str]:
    """(kind, message) of a run in a lost job. last_heartbeat_ns: ns since 1970."""
    name = f"its batch job {job['id']}" if job and job["id"] else "it"
    if is_last_moment(job, last_heartbeat_ns / 1e9):
        return "timeout", f"{name} reached its walltime and was killed"
    return "killed", f"{name} {LOST_JOB}, as an earlier one was; runtime_s ends at the last heartbeat"
