"""LSF as on Summit: whole nodes by ``-nnodes``; a job's script runs on a batch node, jsrun places the ranks."""

import re

from study.machines.batch_systems.base import Scheduler, State

STATES = {
    **dict.fromkeys(["PEND", "RUN", "PROV", "WAIT", "PSUSP", "USUSP", "SSUSP", "FWD_PEND"], State.RUNNING),
    "UNKWN": State.RUNNING,  # the batch node cannot be reached; the job may well go on
    "DONE": State.SUCCESS,
    "EXIT": State.FAILED,
    "ZOMBI": State.FAILED,
}


class Lsf(Scheduler):
    """bsub, bjobs, bkill."""

    def submit_line(self, job):
        """One ``-alloc_flags`` at most, no ``-n`` or ``-R`` beside ``-nnodes``, the script as an argument."""
        wall = f"{job.minutes // 60}:{job.minutes % 60:02d}"
        return ["bsub", "-P", job.account, "-W", wall, "-nnodes", str(job.nodes), *job.options, "-J", job.name,
                "-o", job.output, job.script]  # fmt: skip

    def job_id(self, answer):
        """The number in ``Job <123> is submitted to default queue <batch>``."""
        found = re.search(r"^Job <(\d+)> is submitted", answer, re.M)
        return found[1] if found else None

    def status_line(self, job_id):
        """One word and nothing else."""
        return ["bjobs", "-a", "-noheader", "-o", "stat", job_id]

    def state(self, exit_code, output, errors):
        """A job that LSF has cleaned away is told on either stream, with exit code 255 or, in older releases, 0."""
        word = output.strip()
        if exit_code == 0 and word in STATES:
            return STATES[word]
        return State.FORGOTTEN if re.search(r"Job <\d+> is not found", output + errors) else State.UNREADABLE

    def cancel_line(self, job_ids):
        """Several at once."""
        return ["bkill", *job_ids]
