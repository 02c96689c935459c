"""Cobalt as on Theta: qstat does not show ended jobs; a little later their ``.cobaltlog`` has the exit status."""

import re
from collections.abc import Sequence
from pathlib import Path

from study.core.files import AnyPath
from study.machines.batch_systems.base import BATCH_SYSTEMS, Job, Scheduler, State

ACTIVE = {"queued", "starting", "running", "exiting", "killing", "preempting", "preempted", "dep_hold", "maxrun_hold"}
HELD = {"hold", "user_hold", "admin_hold", "user_hold_run"}


@BATCH_SYSTEMS.register("cobalt")
class Cobalt(Scheduler):
    """qsub, qstat, qdel of Cobalt."""

    submit_program = "qsub"
    job_id_variable = "COBALT_JOBID"

    def submit_line(self, job: Job) -> list[str]:
        """The script must be executable and comes last; output goes to files that begin with PREFIX."""
        prefix = str(Path(job.output).with_suffix(""))
        return ["qsub", "-n", str(job.nodes), "-t", str(job.minutes), "-A", job.account, *job.options,
                "--jobname", job.name, "-O", prefix, job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """The last line is the id; notices may precede it."""
        lines = answer.strip().splitlines()
        return lines[-1].strip() if lines and lines[-1].strip().isdigit() else None

    def status_line(self, job_id: str) -> list[str]:
        """Asks for the state only, under its header."""
        return ["qstat", "--header", "State", job_id]

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """Exit code 1 without output means an ended job, but a crashed qstat looks the same."""
        words = output.split()
        state = words[-1].lower() if words and words[0] == "State" else None
        if exit_code == 0 and state in HELD:
            return State.HELD
        if exit_code == 0 and state in ACTIVE:
            return State.RUNNING
        if exit_code == 0 and state == "done":
            return State.OVER
        if exit_code == 0 and state == "dep_fail":
            return State.FAILED
        return State.FORGOTTEN if exit_code == 1 and not output.strip() and not errors.strip() else State.UNREADABLE

    def record(self, job_id: str, folder: AnyPath) -> State:
        """From the last lines of the job's ``.cobaltlog``."""
        for log in sorted(Path(folder).glob("*.cobaltlog")):
            text = log.read_text(encoding="utf-8", errors="replace")
            if f"jobid {job_id}" not in text.lower():
                continue
            if "maximum execution time exceeded" in text:
                return State.FAILED
            ended = re.search(r"task completed normally with an exit code of (\d+)", text)
            if ended:
                return State.SUCCESS if ended[1] == "0" else State.FAILED
        return State.FORGOTTEN

    def cancel_line(self, job_ids: Sequence[str]) -> list[str]:
        """Several at once."""
        return ["qdel", *job_ids]
