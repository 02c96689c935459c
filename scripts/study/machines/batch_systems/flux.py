"""Flux as on El Capitan and Tuolumne: ``flux batch`` gets whole nodes, and its script runs on the first of them.

There, ``flux run`` places the ranks. ``flux submit`` is not used: it would start the script once for each rank.
Sources: flux-core's manual pages flux-batch(1), flux-jobs(1), flux-cancel(1) and flux-environment(7), and Flux RFC 19
and 21.
"""

import re
from collections.abc import Sequence

from study.machines.batch_systems.base import BATCH_SYSTEMS, Job, Scheduler, State

# RFC 19: base 58 behind the letter f with or without a hook, as the terminal allows. All commands take decimal ids too,
# which need no such letter in file names.
JOB_ID = re.compile(r"[ƒf]([1-9A-HJ-NP-Za-km-z]+)")
DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
# RFC 21's states of a job that is not over, and what flux-jobs before 0.24 called them.
WAITING = {"DEPEND", "PRIORITY", "SCHED", "PENDING"}
ACTIVE = {"RUN", "CLEANUP", "RUNNING"}
ENDED = {"COMPLETED": State.SUCCESS, "FAILED": State.FAILED, "CANCELED": State.FAILED, "TIMEOUT": State.FAILED}
HELD_URGENCY = "0"


@BATCH_SYSTEMS.register("flux")
class Flux(Scheduler):
    """flux batch, flux jobs, flux cancel."""

    submit_program = "flux"
    job_id_variable = "FLUX_ENCLOSING_ID"  # of a batch script, which runs in a Flux of its own

    def submit_line(self, job: Job) -> list[str]:
        """Whole nodes; the account is Flux's bank."""
        return ["flux", "batch", f"--nodes={job.nodes}", "--exclusive", f"--time-limit={job.minutes}m",
                f"--setattr=bank={job.account}", *job.options, f"--job-name={job.name}", f"--output={job.output}",
                job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """The last line is the id, here as a decimal number."""
        lines = answer.strip().splitlines()
        found = JOB_ID.fullmatch(lines[-1].strip()) if lines else None
        if found is None:
            return None
        number = 0
        for digit in found[1]:
            number = 58 * number + DIGITS.index(digit)
        return str(number)

    def status_line(self, job_id: str) -> list[str]:
        """Asks for the status and the urgency, without a header; a job that is asked for by its id may be over."""
        return ["flux", "jobs", "-n", "-o", "{status} {urgency}", job_id]

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """A job that Flux has purged is unknown, with an exit code of 0 or 1 by its release."""
        status, urgency = [*output.split(), "", ""][:2]
        if exit_code == 0 and status in WAITING:
            return State.HELD if urgency == HELD_URGENCY else State.RUNNING
        if exit_code == 0 and status in ACTIVE:
            return State.RUNNING
        if exit_code == 0 and status in ENDED:
            return ENDED[status]
        return State.FORGOTTEN if re.search(r"JobID \S+ unknown", errors) else State.UNREADABLE

    def cancel_line(self, job_ids: Sequence[str]) -> list[str]:
        """Several at once."""
        return ["flux", "cancel", *job_ids]
