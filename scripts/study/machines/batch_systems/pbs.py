"""PBS Pro as on Polaris: whole nodes by ``select``; ended jobs stay in ``qstat -x`` for a while."""

import re

from study.machines.batch_systems.base import Scheduler, State

ACTIVE = set("QRHWTESUBM")  # queued, running, held, waiting, in transit, exiting, suspended, ..., begun (array), moved


class Pbs(Scheduler):
    """qsub, qstat, qdel of PBS Pro."""

    def submit_line(self, job):
        """The machine's options hold queue and file systems, without which Polaris refuses."""
        wall = f"{job.minutes // 60:02d}:{job.minutes % 60:02d}:00"
        return ["qsub", "-A", job.account, "-l", f"select={job.nodes}", "-l", f"walltime={wall}",
                *job.options, "-N", job.name[:200], "-j", "oe", "-o", job.output, job.script]  # fmt: skip

    def job_id(self, answer):
        """``123.polaris-pbs-01...``, alone on the last line."""
        lines = answer.strip().splitlines()
        return lines[-1].strip() if lines and re.match(r"^\d+\.", lines[-1].strip()) else None

    def status_line(self, job_id):
        """All of the job, ended or not."""
        return ["qstat", "-x", "-f", job_id]

    def state(self, exit_code, output, errors):
        """``job_state`` and, of an ended job, ``Exit_status``."""
        state = re.search(r"^\s*job_state = (\w)", output, re.M)
        if exit_code == 0 and state and state[1] in ACTIVE:
            return State.RUNNING
        if exit_code == 0 and state and state[1] in "FX":
            ended = re.search(r"^\s*Exit_status = (-?\d+)", output, re.M)
            if ended is None:
                return State.OVER
            return State.SUCCESS if ended[1] == "0" else State.FAILED
        return State.FORGOTTEN if re.search(r"Unknown Job Id", errors + output, re.I) else State.UNREADABLE

    def cancel_line(self, job_ids):
        """Several at once."""
        return ["qdel", *job_ids]
