"""PBS Pro as on Polaris: whole nodes with ``select``; ``qstat -x`` shows ended jobs for a while."""

import re
from collections.abc import Sequence

from study.machines.batch_systems.base import BATCH_SYSTEMS, Job, Scheduler, State

JOB_ID = re.compile(r"\d+\.[A-Za-z0-9.-]+")  # Snakemake puts it on the command line that asks for the job's state
# PBS Professional's Reference Guide, table of job states: queued, running, waiting, in transit, exiting, begun (array).
# M, moved to another server, never changes here: not readable.
ACTIVE = set("QRWTEB")
HELD = set("HSU")  # held, suspended, suspended by keyboard use
NEVER = re.compile(r"^\s*comment = .*Can Never Run", re.M | re.I)  # of a queued job, from the scheduler
ENDED = set("FXC")  # finished, expired (subjob); Torque: completed
# A server whose job_history_enable is off refuses -x (PBSE_JOBHISTNOTSET).
NO_HISTORY = re.compile(r"not configured to maintain job history|illegal option|invalid option", re.I)


@BATCH_SYSTEMS.register("pbs")
class Pbs(Scheduler):
    """qsub, qstat, qdel of PBS Pro."""

    submit_program = "qsub"
    job_id_variable = "PBS_JOBID"

    def submit_line(self, job: Job) -> list[str]:
        """The machine's options contain queue and file systems, which Polaris requires."""
        wall = f"{job.minutes // 60:02d}:{job.minutes % 60:02d}:00"
        return ["qsub", "-A", job.account, "-l", f"select={job.nodes}", "-l", f"walltime={wall}",
                *job.options, "-N", job.name[:200], "-j", "oe", "-o", job.output, job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """``123.polaris-pbs-01...``, alone on the last line."""
        lines = answer.strip().splitlines()
        return lines[-1].strip() if lines and JOB_ID.fullmatch(lines[-1].strip()) else None

    def status_line(self, job_id: str) -> list[str]:
        """Asks for all attributes of the job, ended or not."""
        return ["qstat", "-x", "-f", job_id]

    def second_line(self, job_id: str, exit_code: int | None, output: str, errors: str) -> list[str] | None:
        """Without ``-x`` where the server keeps no history."""
        return ["qstat", "-f", job_id] if exit_code and NO_HISTORY.search(errors + output) else None

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """``job_state`` and, for an ended job, ``Exit_status``; a server without history forgets ended jobs."""
        state = re.search(r"^\s*job_state = (\w)", output, re.M)
        if exit_code == 0 and state and (state[1] in HELD or (state[1] == "Q" and NEVER.search(output))):
            return State.HELD
        if exit_code == 0 and state and state[1] in ACTIVE:
            return State.RUNNING
        if exit_code == 0 and state and state[1] in ENDED:
            ended = re.search(r"^\s*Exit_status = (-?\d+)", output, re.M | re.I)
            if ended is None:
                return State.OVER
            return State.SUCCESS if ended[1] == "0" else State.FAILED
        if re.search(r"Job has finished", errors + output):
            return State.OVER
        return State.FORGOTTEN if re.search(r"Unknown Job Id", errors + output, re.I) else State.UNREADABLE

    def cancel_line(self, job_ids: Sequence[str]) -> list[str]:
        """Several at once."""
        return ["qdel", *job_ids]
