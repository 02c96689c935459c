"""Limits of a batch system, and the resources that a study's jobs request."""

import datetime
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from study.core import commands
from study.core.errors import StudyError
from study.core.wording import counted
from study.machines import launchers, packing, walltime
from study.machines.batch_systems import BATCH_SYSTEMS
from study.machines.job_variables import with_plain_answers, without_other_jobs
from study.machines.packing import Timed

LOCAL, GENERIC = "local", "cluster-generic"  # executors of Snakemake
LAST_S = 90  # last part of a job, before which a run must have ended
LOST_JOB = "was lost (no exit status)"  # in the message of a run whose job was killed, preempted, or lost its node
UNSET = "start again from a new shell, in which the variables of that job are not set, or in a new job"
TRIES = 2  # jobs per run if jobs are lost; one more job then records this


def refusal(timed: Timed, machine: dict[str, Any], components: Mapping[str, int]) -> str | None:
    """The rule of the machine's queue that a run would break, or None.

    components: how many runs of a group share a job, see `study.machines.packing`.
    """
    nodes = launchers.nodes(timed.ranks, machine)
    together = packing.together(timed, machine, components)
    if packing.group(timed, machine):
        if together == 1:
            size = f"a run of {counted(timed.ranks, 'rank')} has {counted(nodes, 'node')}"
            return f"queue.smallest_nodes: {size}; a job must have at least {walltime.smallest_nodes(machine)}"
        if not launchers.of(machine).places_itself:
            able = sorted(name for name, launcher in launchers.LAUNCHERS.items() if launcher.places_itself)
            return f"launcher: runs packed into one job need one of {', '.join(able)}"
        if together * nodes > machine["nodes"]:
            return f"nodes: {together} runs of {nodes} nodes in one job are more than {machine['nodes']} nodes"
        nodes = packing.padded(together * nodes, timed.minutes, machine)
    longest = walltime.longest_minutes(nodes, machine)
    if longest and timed.minutes > longest:
        return (
            f"queue.longest_minutes: {nodes} nodes may run for {longest} minutes, a job takes {timed.minutes} "
            f"(the run's time limit and {walltime.MARGIN_MIN} minutes more)"
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


def node_hours(jobs: Iterable[tuple[int, int]]) -> float:
    """The maximum of node-hours that jobs can use. jobs: (nodes, minutes) of each."""
    return sum(nodes * minutes for nodes, minutes in jobs) / 60


def resources(ranks: Callable[[Any], int], machine: dict[str, Any], limit_s: Callable[..., float]) -> dict[str, Any]:
    """The resources of a job for Snakemake: names to values or functions of wildcards; empty without a batch system.

    ranks: a function from wildcards to the job's ranks. limit_s: one from wildcards and attempt to the time limit (s)
    of what runs in it. ``scripts/cluster.py`` reads them; of packed runs, Snakemake adds up nodes and tasks.
    """
    if "scheduler" not in machine:
        return {}
    return {
        "machine": machine["name"],
        "nodes": lambda wildcards: launchers.nodes(ranks(wildcards), machine),
        "tasks": ranks,
        "runtime": lambda wildcards, attempt: walltime.job_minutes(limit_s(wildcards, attempt)),
    }


def job(variables: Mapping[str, str], machine: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """The current batch job, ``{"id": text, "ends_s": seconds since 1970 or None}``; None outside of a batch job.

    With ``options``, the machine's ``job_options`` with which it was submitted, if that is known. variables: the
    environment. ``STUDY_JOB_ENDS`` and ``STUDY_JOB_OPTIONS`` are set by ``scripts/cluster.py``, the others by batch
    systems. machine: whose jobs count; on one without a batch system none does. Raises `StudyError` if Slurm does not
    know the job any more.
    """
    if machine is not None:
        if "scheduler" not in machine:
            return None
        variables = without_other_jobs(variables, machine)
    names = [system.job_id_variable for system in BATCH_SYSTEMS.values()]
    ids = [variables[name] for name in names if variables.get(name)]
    ends: str | float | None = variables.get("STUDY_JOB_ENDS") or variables.get("SLURM_JOB_END_TIME")
    if ends is None and variables.get("SLURM_JOB_ID"):
        ends = _slurm_says(variables["SLURM_JOB_ID"], variables)
    if not ids and ends is None:
        return None
    try:
        options = variables.get("STUDY_JOB_OPTIONS")
        known = {} if options is None else {"options": shlex.split(options)}
        return {"id": ids[0] if ids else None, "ends_s": None if ends is None else float(ends), **known}
    except ValueError as error:
        raise StudyError(
            f"STUDY_JOB_ENDS, SLURM_JOB_END_TIME or STUDY_JOB_OPTIONS is not as a batch job has it: {error}; unset it"
        ) from None


def _slurm_says(job_id: str, variables: Mapping[str, str]) -> float | None:
    """The end (s) of a Slurm job, which versions before 23 do not export; None if it cannot be determined."""
    line = ["squeue", "--noheader", "--jobs", job_id, "--format", "%e"]
    try:
        done = commands.run(line, 60, with_plain_answers(variables))
        if "Invalid job id" in done.stderr:
            raise StudyError(f"SLURM_JOB_ID: Slurm does not know the job {job_id}: it is over; {UNSET}")
        return datetime.datetime.fromisoformat(done.stdout.strip()).timestamp()
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None


def seconds_left(job: dict[str, Any] | None, now: float) -> float | None:
    """Time limit (s) of a run in a `job`; None if the job's end is unknown. now: the current time (s).

    Raises `StudyError` if the job is over, or so nearly that no run can start in it.
    """
    if job is None or job["ends_s"] is None:
        return None
    left: float = job["ends_s"] - now
    if left > LAST_S:
        return left - LAST_S
    name, variables = f"the batch job {job['id'] or ''}".strip(), "STUDY_JOB_ENDS or SLURM_JOB_END_TIME"
    if left <= 0:
        raise StudyError(f"{variables}: {name} ended {-left:.0f} s ago; {UNSET}")
    raise StudyError(
        f"{variables}: {name} ends in {left:.0f} s, and a run must end {LAST_S} s before; request a longer walltime"
    )


def is_last_moment(job: dict[str, Any] | None, now: float) -> bool:
    """Whether a signal at time ``now`` (s) is due to the job's walltime."""
    return job is not None and job["ends_s"] is not None and now > job["ends_s"] - LAST_S


def lost(job: dict[str, Any] | None, last_heartbeat_ns: int) -> tuple[str, str]:
    """(kind, message) of a run in a lost job. last_heartbeat_ns: ns since 1970."""
    name = f"its batch job {job['id']}" if job and job["id"] else "it"
    if is_last_moment(job, last_heartbeat_ns / 1e9):
        return "timeout", f"{name} reached its walltime and was killed"
    return (
        "killed",
        f"{name} {LOST_JOB}, as an earlier one was; runtime_s ends at the last heartbeat",
    )
