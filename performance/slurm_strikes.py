"""The strikes against a study on a real Slurm; one registered function each.

A strike gets the field (``slurm``, a `VirtualSlurm`; ``snakemake``, the running process) and a source of chance. It
returns what was done and how it is undone (None: by itself), or None if there was nothing to strike. What undoes it
returns False if Slurm did not answer; it is then called again.
"""

import functools
import os
import signal

from study.core.registry import Registry

STRIKES = Registry("strike")


def _choose_running_job(field, chance):
    """Choose a running job of the study; returns its id, or None."""
    jobs = [job for job, state in field.slurm.jobs() if state == "RUNNING"]
    return chance.choice(jobs) if jobs else None


@STRIKES.register("slurmd killed")
def kill_slurmd(field, chance):
    """Kill a node's slurmd: its jobs' processes go on; if it stays away, Slurm requeues them elsewhere meanwhile."""
    node = chance.choice(field.slurm.nodes)
    if not field.slurm.signal_daemon(node):
        return None
    return node, functools.partial(field.slurm.start_daemon, node)


@STRIKES.register("node down")
def take_node_down(field, chance):
    """Take a node down: its jobs are killed and requeued."""
    return _set_node_state(field, chance, "DOWN")


@STRIKES.register("node drained")
def drain_node(field, chance):
    """Drain a node: its jobs go on, no other starts."""
    return _set_node_state(field, chance, "DRAIN")


def _set_node_state(field, chance, state):
    """Set the state of a random node; its undoing resumes it."""
    node = chance.choice(field.slurm.nodes)

    def set_state(to):
        return field.slurm.ask("scontrol", "update", f"NodeName={node}", f"State={to}", "Reason=soak") is not None

    def resume():
        return set_state("RESUME") or bool(field.slurm.node_states())  # refused: the node has come back by itself

    return (node, resume) if set_state(state) else None


@STRIKES.register("job cancelled")
def cancel_job(field, chance):
    """Cancel a job: Snakemake submits it again."""
    return _command_job(field, chance, "scancel")


@STRIKES.register("job requeued")
def requeue_job(field, chance):
    """Requeue a job: Slurm starts it again under the same id."""
    return _command_job(field, chance, "scontrol", "requeue")


def _command_job(field, chance, *command):
    """Give a command of Slurm for a running job."""
    job = _choose_running_job(field, chance)
    return (f"job {job}", None) if job and field.slurm.ask(*command, job) is not None else None


@STRIKES.register("jobs preempted")
def preempt_jobs(field, chance):
    """Preempt jobs: a more urgent job takes a whole node, whose jobs are requeued."""
    node = chance.choice(field.slurm.nodes)
    line = ["sbatch", "--partition", "urgent", "--exclusive", "--nodelist", node, "--output", "/dev/null"]
    return (node, None) if field.slurm.ask(*line, "--wrap", "sleep 3") is not None else None


@STRIKES.register("slurmctld killed")
def kill_slurmctld(field, _):
    """Kill slurmctld: no command of Slurm answers until it is started again."""
    if not field.slurm.signal_daemon("slurmctld"):
        return None
    return "slurmctld", functools.partial(field.slurm.start_daemon, "slurmctld")


@STRIKES.register("Snakemake killed")
def kill_snakemake(field, _):
    """Kill Snakemake with all that it started on this machine; its jobs go on."""
    if field.snakemake.poll() is not None:
        return None
    os.killpg(field.snakemake.pid, signal.SIGKILL)
    return "Snakemake", None
