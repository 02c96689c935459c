"""What strikes a study on a real Slurm; one registered function each.

A strike gets the field (``slurm``, a `VirtualSlurm`; ``snakemake``, the running process) and a source of chance. It
returns what was done and how it is undone (None: by itself), or None if there was nothing to strike. What undoes it
returns False if Slurm did not answer; it is then called again.
"""

import functools
import os
import signal

from study.core.registry import Registry

STRIKES = Registry("strike")


def _running_job(field, chance):
    """The id of a running job of the study, or None."""
    jobs = [job for job, state in field.slurm.jobs() if state == "RUNNING"]
    return chance.choice(jobs) if jobs else None


@STRIKES.register("slurmd killed")
def slurmd_killed(field, chance):
    """Its jobs' processes go on. If it stays away for long, Slurm requeues the jobs on another node meanwhile."""
    node = chance.choice(field.slurm.nodes)
    if not field.slurm.signal_daemon(node):
        return None
    return node, functools.partial(field.slurm.start_daemon, node)


@STRIKES.register("node down")
def node_down(field, chance):
    """The node's jobs are killed and requeued."""
    return _node_state(field, chance, "DOWN")


@STRIKES.register("node drained")
def node_drained(field, chance):
    """The node's jobs go on, no other starts."""
    return _node_state(field, chance, "DRAIN")


def _node_state(field, chance, state):
    node = chance.choice(field.slurm.nodes)

    def set_state(to):
        return field.slurm.ask("scontrol", "update", f"NodeName={node}", f"State={to}", "Reason=soak") is not None

    def resume():
        return set_state("RESUME") or bool(field.slurm.node_states())  # refused: the node has come back by itself

    return (node, resume) if set_state(state) else None


@STRIKES.register("job cancelled")
def job_cancelled(field, chance):
    """Snakemake submits it again."""
    return _with_job(field, chance, "scancel")


@STRIKES.register("job requeued")
def job_requeued(field, chance):
    """Slurm starts it again under the same id."""
    return _with_job(field, chance, "scontrol", "requeue")


def _with_job(field, chance, *command):
    job = _running_job(field, chance)
    return (f"job {job}", None) if job and field.slurm.ask(*command, job) is not None else None


@STRIKES.register("jobs preempted")
def jobs_preempted(field, chance):
    """A more urgent job wants a whole node, whose jobs are requeued."""
    node = chance.choice(field.slurm.nodes)
    line = ["sbatch", "--partition", "urgent", "--exclusive", "--nodelist", node, "--output", "/dev/null"]
    return (node, None) if field.slurm.ask(*line, "--wrap", "sleep 3") is not None else None


@STRIKES.register("slurmctld killed")
def slurmctld_killed(field, _):
    """No command of Slurm answers until it is started again."""
    if not field.slurm.signal_daemon("slurmctld"):
        return None
    return "slurmctld", functools.partial(field.slurm.start_daemon, "slurmctld")


@STRIKES.register("Snakemake killed")
def snakemake_killed(field, _):
    """With all that it started on this machine; its jobs go on."""
    if field.snakemake.poll() is not None:
        return None
    os.killpg(field.snakemake.pid, signal.SIGKILL)
    return "Snakemake", None
