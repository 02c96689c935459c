"""LSF as on Summit: whole nodes with ``-nnodes``; a job's script runs on a batch node, jsrun places the ranks."""

import re
from collections.abc import Sequence

from study.machines.batch_systems.base import BATCH_SYSTEMS, Job, Scheduler, State

STATES = {
    **dict.fromkeys(["PEND", "RUN", "PROV", "WAIT", "FWD_PEND"], State.RUNNING),
    **dict.fromkeys(["PSUSP", "USUSP", "SSUSP"], State.HELD),
    "UNKWN": State.UNREACHABLE,  # the job may continue
    "DONE": State.SUCCESS,
    "EXIT": State.FAILED,
    "ZOMBI": State.FAILED,
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of a site's wrapper


@BATCH_SYSTEMS.register("lsf")
class Lsf(Scheduler):
    """bsub, bjobs, bkill."""

    submit_program = "bsub"
    job_id_variable = "LSB_JOBID"

    def submit_line(self, job: Job) -> list[str]:
        """At most one ``-alloc_flags``, no ``-n`` or ``-R`` with ``-nnodes``, the script as an argument."""
        wall = f"{job.minutes // 60}:{job.minutes % 60:02d}"
        return ["bsub", "-P", job.account, "-W", wall, "-nnodes", str(job.nodes), *job.options, "-J", job.name,
                "-o", job.output, job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """The number in ``Job <123> is submitted to default queue <batch>``."""
        found = re.search(r"^Job <(\d+)> is submitted", answer, re.M)
        return found[1] if found else None

    def status_line(self, job_id: str) -> list[str]:
        """Asks for one word only."""
        return ["bjobs", "-a", "-noheader", "-o", "stat", job_id]

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """A job that LSF has removed is reported on either stream, with exit code 255 or, in older releases, 0."""
        words = [word for line in output.splitlines() if (word := COLOUR.sub("", line).strip()) in STATES]
        if exit_code == 0 and words:  # among what a site prints
            return STATES[words[-1]]
        return State.FORGOTTEN if re.search(r"Job <\d+> is not found", output + errors) else State.UNREADABLE

    def cancel_line(self, job_ids: Sequence[str]) -> list[str]:
        """Several at once."""
        return ["bkill", *job_ids]
