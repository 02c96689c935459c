"""Cobalt as on Theta: an ended job is gone from qstat; what became of it is in its ``.cobaltlog``, a little later."""

import re
from pathlib import Path

from study.machines.batch_systems.base import Scheduler, State

ACTIVE = {"queued", "starting", "running", "exiting", "killing", "preempting", "preempted", "hold", "user_hold",
          "admin_hold", "dep_hold", "maxrun_hold", "user_hold_run"}  # fmt: skip


class Cobalt(Scheduler):
    """qsub, qstat, qdel of Cobalt."""

    def submit_line(self, job):
        """The script must be executable and comes last; output goes to files that begin with PREFIX."""
        prefix = str(Path(job.output).with_suffix(""))
        return ["qsub", "-n", str(job.nodes), "-t", str(job.minutes), "-A", job.account, *job.options,
                "--jobname", job.name, "-O", prefix, job.script]  # fmt: skip

    def job_id(self, answer):
        """The last line is the id; notices may stand before it."""
        lines = answer.strip().splitlines()
        return lines[-1].strip() if lines and lines[-1].strip().isdigit() else None

    def status_line(self, job_id):
        """The state alone, under its header."""
        return ["qstat", "--header", "State", job_id]

    def state(self, exit_code, output, errors):
        """Exit code 1 and nothing said is an ended job, but a crashed qstat looks the same."""
        words = output.split()
        state = words[-1].lower() if words and words[0] == "State" else None
        if exit_code == 0 and state in ACTIVE:
            return State.RUNNING
        if exit_code == 0 and state == "done":
            return State.OVER
        if exit_code == 0 and state == "dep_fail":
            return State.FAILED
        return State.FORGOTTEN if exit_code == 1 and not output.strip() and not errors.strip() else State.UNREADABLE

    def record(self, job_id, folder):
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

    def cancel_line(self, job_ids):
        """Several at once."""
        return ["qdel", *job_ids]
