"""What a batch system allows and what a study's jobs ask of it."""

import math

from study import launcher

MARGIN_MIN = 5  # of a job's walltime over its run's time limit: to start, to end, and to write down how
LAST_S = 90  # of a job, in which a run must have ended


def job_minutes(machine):
    """Walltime (minutes) of a run's batch job."""
    return math.ceil(machine["time_limit_s"] / 60) + MARGIN_MIN


def refusal(ranks, machine):
    """Which rule of the machine's queue a run on so many ranks would break, or None."""
    rules, nodes = machine.get("queue", {}), launcher.nodes(ranks, machine)
    smallest = rules.get("smallest_nodes", 1)
    if nodes < smallest:
        return f"queue.smallest_nodes: {ranks} ranks need {nodes} nodes, a job must have {smallest}"
    longest = [rule["minutes"] for rule in rules.get("longest_minutes", []) if rule["from_nodes"] <= nodes]
    if longest and job_minutes(machine) > longest[-1]:
        return (
            f"queue.longest_minutes: {nodes} nodes may run for {longest[-1]} minutes, a job takes "
            f"{job_minutes(machine)} (time_limit_s and {MARGIN_MIN} minutes more)"
        )
    return None


def node_hours(runs, machine):
    """The most node-hours that the jobs of ``runs`` (`study.grid.Run`) can take."""
    return sum(launcher.nodes(run.gpus, machine) for run in runs) * job_minutes(machine) / 60


def resources(ranks, machine, variables):
    """What a job asks for, as Snakemake's resources: names to functions of wildcards, or values; nothing without a
    batch system.

    ranks: a function from wildcards to the job's ranks. Slurm's plugin reads all of these, ``scripts/cluster.py`` nodes
    and runtime only. ``mpi`` keeps the plugin from putting the job into a step of its own, in which srun would hang.
    """
    if "scheduler" not in machine:
        return {}
    asked = {"nodes": lambda wildcards: launcher.nodes(ranks(wildcards), machine), "runtime": job_minutes(machine)}
    if machine["scheduler"] == "slurm":
        asked |= {"tasks": ranks, "cpus_per_task": machine["cores_per_rank"]}
        asked["mpi"] = lambda wildcards: "srun" if ranks(wildcards) > 1 else ""  # the plugin refuses it for one task
        asked |= {"slurm_account": variables["STUDY_ACCOUNT"]} if variables.get("STUDY_ACCOUNT") else {}
        if machine["gpus_per_rank"]:
            asked["gres"] = lambda wildcards: f"gpu:{min(ranks(wildcards), machine['ranks_per_node'])}"
    return asked


def seconds_left(variables, now):
    """Seconds that a run may take in the batch job it is in, None outside of one.

    variables: the environment, with ``STUDY_JOB_ENDS`` (seconds since 1970) in a job. now: the time.
    """
    ends = variables.get("STUDY_JOB_ENDS")
    return None if ends is None else max(1.0, float(ends) - now - LAST_S)
