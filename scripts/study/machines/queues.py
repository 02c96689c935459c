"""What a batch system allows and what a study's jobs ask of it."""

import datetime
import math
import subprocess

from study.machines import launchers, packing

MARGIN_MIN = 5  # of a job's walltime over its run's time limit: to start, to end, and to write down how
LAST_S = 90  # of a job, in which a run must have ended
JOB_IDS = ("LSB_JOBID", "COBALT_JOBID", "PBS_JOBID", "SLURM_JOB_ID")
TRIES = 2  # of a run whose job ends without a word; another job then only writes that down


def job_minutes(machine):
    """Walltime (minutes) of a run's batch job."""
    return math.ceil(machine["time_limit_s"] / 60) + MARGIN_MIN


def refusal(ranks, machine, components):
    """Which rule of the machine's queue a run on so many ranks would break, or None.

    components: how many runs of a group share a job, see `study.machines.packing`.
    """
    rules, nodes = machine.get("queue", {}), launchers.nodes(ranks, machine)
    together = packing.together(ranks, machine, components)
    if packing.group(ranks, machine):
        if together == 1:
            return f"queue.smallest_nodes: {ranks} ranks need {nodes} nodes, a job must have {rules['smallest_nodes']}"
        if machine["launcher"] not in packing.PLACES_ITSELF:
            return f"launcher: runs packed into one job need one of {', '.join(sorted(packing.PLACES_ITSELF))}"
        if together * nodes > machine["nodes"]:
            return f"nodes: {together} runs of {nodes} nodes in one job are more than {machine['nodes']} nodes"
        nodes = packing.padded(together * nodes, machine)
    longest = [rule["minutes"] for rule in rules.get("longest_minutes", []) if rule["from_nodes"] <= nodes]
    if longest and job_minutes(machine) > longest[-1]:
        return (
            f"queue.longest_minutes: {nodes} nodes may run for {longest[-1]} minutes, a job takes "
            f"{job_minutes(machine)} (time_limit_s and {MARGIN_MIN} minutes more)"
        )
    return None


def node_hours(nodes, machine):
    """The most node-hours that jobs can take. nodes: of each job, an iterable."""
    return sum(nodes) * job_minutes(machine) / 60


def resources(ranks, machine, variables):
    """What a job asks for, as Snakemake's resources: names to functions of wildcards, or values; nothing without a
    batch system.

    ranks: a function from wildcards to the job's ranks. Slurm's plugin reads all of these, ``scripts/cluster.py`` nodes
    and runtime only. ``mpi`` keeps the plugin from putting the job into a step of its own, in which srun would hang.
    """
    if "scheduler" not in machine:
        return {}
    asked = {"nodes": lambda wildcards: launchers.nodes(ranks(wildcards), machine), "runtime": job_minutes(machine)}
    if machine["scheduler"] == "slurm":
        asked |= {"tasks": ranks, "cpus_per_task": machine["cores_per_rank"]}
        asked["mpi"] = lambda wildcards: "srun" if ranks(wildcards) > 1 else ""  # the plugin refuses it for one task
        asked |= {"slurm_account": variables["STUDY_ACCOUNT"]} if variables.get("STUDY_ACCOUNT") else {}
        if machine["gpus_per_rank"]:
            asked["gres"] = lambda wildcards: f"gpu:{min(ranks(wildcards), machine['ranks_per_node'])}"
    return asked


def job(variables):
    """The batch job that this is, ``{"id": text, "ends_s": seconds since 1970 or None}``; None outside of one.

    variables: the environment. ``STUDY_JOB_ENDS`` is set by ``scripts/cluster.py``, the others by batch systems.
    """
    ids = [variables[name] for name in JOB_IDS if variables.get(name)]
    ends = variables.get("STUDY_JOB_ENDS") or variables.get("SLURM_JOB_END_TIME")
    if ends is None and variables.get("SLURM_JOB_ID"):
        ends = _slurm_says(variables["SLURM_JOB_ID"], variables)
    if not ids and ends is None:
        return None
    return {"id": ids[0] if ids else None, "ends_s": None if ends is None else float(ends)}


def _slurm_says(job_id, variables):
    """When a job of Slurm's ends (s), which versions before 23 do not tell it; None where it cannot be found out."""
    line = ["squeue", "--noheader", "--jobs", job_id, "--format", "%e"]
    try:
        said = subprocess.run(line, capture_output=True, text=True, timeout=60, env=variables).stdout
        return datetime.datetime.fromisoformat(said.strip()).timestamp()
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None


def seconds_left(job, now):
    """Seconds that a run may take in a `job`, None where no end of it is known. now: the time (s)."""
    return None if job is None or job["ends_s"] is None else max(1.0, job["ends_s"] - now - LAST_S)


def is_last_moment(job, now):
    """Whether a signal that comes ``now`` (s) is that of the job's walltime."""
    return job is not None and job["ends_s"] is not None and now > job["ends_s"] - LAST_S


def lost(job, last_sign_ns):
    """(kind, message) of a run of which nothing is known but its job and its last sign of life (ns since 1970)."""
    name = f"its batch job {job['id']}" if job and job["id"] else "it"
    if is_last_moment(job, last_sign_ns / 1e9):
        return "timeout", f"{name} reached its walltime and was killed"
    return "killed", f"{name} ended without a word, and so did an earlier one; runtime_s is until its last sign of life"
