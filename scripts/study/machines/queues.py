"""Jobs in a batch system's queue: their walltime and size, which runs share a job, limits, the current job.

A job has lanes, each on nodes of its own. The runs of a lane are made one after the other: those of one block and one
number of nodes, as many as the queue lets a job make. Runs that are too small for a job of their own have lanes in a
common one, which are at work at the same time; the launcher places them. If a job has too few lanes to fill its size,
it requests that size anyway. To Snakemake, the runs of a job are a group.
"""

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
NEXT_MIN = 1  # instead of it, for each further run of a lane
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


def name_longest(machine: dict[str, Any]) -> str:
    """The key of the machine's file that limits a job's walltime, for a message; it says so where it is assumed."""
    queue = machine.get("queue", {})
    if "longest_minutes" not in queue:
        return "time_limit_s"
    return "queue.longest_minutes (assumed)" if queue.get("assumed") else "queue.longest_minutes"


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


def sum_minutes(lane: Iterable[Timed]) -> int:
    """Walltime (minutes) of a job in which runs are made one after the other; 0 without runs."""
    minutes = [each.minutes - MARGIN_MIN + NEXT_MIN for each in lane]
    return sum(minutes) + MARGIN_MIN - NEXT_MIN if minutes else 0


def choose_nodes(nodes: int, minutes: int, machine: dict[str, Any]) -> int | None:
    """Number of nodes of the job in which a run on ``nodes`` nodes may have so many minutes; None if no job may."""
    if nodes < get_smallest_nodes(machine) and launchers.get_launcher(machine).places_itself:
        return choose_job_nodes(nodes, minutes, machine)
    longest = find_longest_minutes(nodes, machine)
    return nodes if longest is None or minutes <= longest else None


@dataclasses.dataclass(frozen=True)
class SharedJob:
    """A batch job and the runs that it makes.

    name: of Snakemake's group; None for a run alone on the nodes that it needs. lanes: names of runs, those of a lane
    in the order in which they are made.
    """

    name: str | None
    nodes: int
    minutes: int
    lanes: tuple[tuple[str, ...], ...]


def index_lanes(jobs: Iterable[SharedJob]) -> dict[str, tuple[str, ...]]:
    """{run: its lane} of batch jobs."""
    return {name: lane for job in jobs for lane in job.lanes for name in lane}


def share_jobs(
    units: Iterable[tuple[int | None, Sequence[str]]], timed: Mapping[str, Timed], machine: dict[str, Any]
) -> list[SharedJob]:
    """Divide runs among batch jobs.

    Args:
        units: (block, names) of runs on equally many nodes that are compared with each other, so that they stay
            together if the queue allows it; None for what is in no block.
        timed: the runs by their names, in the order in which they start.
        machine: the machine's file.
    """
    lanes: dict[tuple[int | None, int], list[list[str]]] = {}
    for block, unit in units:
        nodes = launchers.count_nodes(timed[unit[0]].ranks, machine)
        lanes_of_block = lanes.setdefault((block, nodes), [])
        can_grow = block is not None and nodes >= get_smallest_nodes(machine)
        for part in [list(unit)] if _can_share(unit, timed, machine) else [[name] for name in unit]:
            with_room = (lane for lane in lanes_of_block if can_grow and _can_share([*lane, *part], timed, machine))
            lane = next(with_room, None)
            if lane is None:
                lanes_of_block.append(part)
            else:
                lane += part
    place = {name: number for number, name in enumerate(timed)}
    jobs: list[SharedJob] = []
    small: dict[tuple[int, int], list[list[str]]] = {}  # by the nodes of a lane and those of the job
    for (block, nodes), lanes_of_block in lanes.items():
        for number, lane in enumerate(lanes_of_block, start=1):
            lane.sort(key=place.__getitem__)
            minutes = sum_minutes(timed[name] for name in lane)
            if nodes < get_smallest_nodes(machine):
                size = choose_job_nodes(nodes, minutes, machine) or get_smallest_nodes(machine)
                small.setdefault((nodes, size), []).append(lane)
                continue
            part_name = f"_part_{number}" if len(lanes_of_block) > 1 else ""
            name = f"block_{block}_nodes_{nodes}{part_name}" if len(lane) > 1 else None
            jobs.append(SharedJob(name, nodes, minutes, (tuple(lane),)))
    return jobs + [job for key in small for job in _pack_lanes(*key, small[key], timed, machine)]


def _can_share(names: Sequence[str], timed: Mapping[str, Timed], machine: dict[str, Any]) -> bool:
    """Whether a job may be so long that it makes these runs, on equally many nodes, one after the other.

    Where the machine's file does not tell what its queue allows, it may be as long as that of its longest run.
    """
    if len(names) == 1:
        return True
    minutes = sum_minutes(timed[name] for name in names)
    size = choose_nodes(launchers.count_nodes(timed[names[0]].ranks, machine), minutes, machine)
    if size is None or find_longest_minutes(size, machine) is not None:
        return size is not None
    return minutes <= compute_job_minutes(machine["time_limit_s"])


def _pack_lanes(
    nodes: int, size: int, lanes: list[list[str]], timed: Mapping[str, Timed], machine: dict[str, Any]
) -> Iterable[SharedJob]:
    """Pack lanes of ``nodes`` nodes into jobs of ``size`` nodes, those of similar length into one."""
    most = math.ceil(size / nodes) if launchers.get_launcher(machine).places_itself else 1
    lanes = sorted(lanes, key=lambda lane: -sum_minutes(timed[name] for name in lane))
    for first in range(0, len(lanes), most):
        packed = lanes[first : first + most]
        measured = measure_job([[timed[name] for name in lane] for lane in packed], machine)
        yield SharedJob(f"nodes_{nodes}_of_{size}_part_{first // most + 1}", *measured, tuple(map(tuple, packed)))


def measure_job(lanes: Sequence[Sequence[Timed]], machine: dict[str, Any]) -> tuple[int, int]:
    """(nodes, minutes) that a job with these lanes requests."""
    minutes = max(map(sum_minutes, lanes), default=MARGIN_MIN)
    nodes = sum(max(launchers.count_nodes(each.ranks, machine) for each in lane) for lane in lanes)
    return pad_nodes(nodes, minutes, machine), minutes


def pad_nodes(nodes: int, minutes: int, machine: dict[str, Any]) -> int:
    """Nodes that a job requests whose lanes have so many nodes, for a walltime of so many minutes."""
    return choose_job_nodes(nodes, minutes, machine) or max(nodes, get_smallest_nodes(machine))


def refuse_run(timed: Timed, machine: dict[str, Any]) -> str | None:
    """The rule of the machine's queue that a run would break, or None."""
    nodes, smallest = launchers.count_nodes(timed.ranks, machine), get_smallest_nodes(machine)
    if nodes < smallest:
        if not launchers.get_launcher(machine).places_itself:
            able = sorted(name for name, launcher in launchers.LAUNCHERS.items() if launcher.places_itself)
            size = f"a run of {format_count(timed.ranks, 'rank')} has {format_count(nodes, 'node')}"
            return (
                f"queue.smallest_nodes: {size}; a job must have at least {smallest}, and only the launchers "
                f"{', '.join(able)} run several in one"
            )
        if smallest > machine["nodes"]:
            return f"queue.smallest_nodes: {smallest} are more than the {machine['nodes']} nodes of the machine"
        nodes = pad_nodes(nodes, timed.minutes, machine)
    longest = find_longest_minutes(nodes, machine)
    if longest and timed.minutes > longest:
        return (
            f"{name_longest(machine)}: {format_count(nodes, 'node')} may run for {longest} minutes, a job takes "
            f"{timed.minutes} (the run's time limit and {MARGIN_MIN} minutes more)"
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
    of what runs in it. ``scripts/cluster.py`` reads them.
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
