"""Mends what Snakemake's executor plugin for Slurm does wrong when something is killed or does not answer.

In version 2.6.1 of snakemake-executor-plugin-slurm:

1. A restarted Snakemake does not know the jobs of one that was killed. They go on, and it submits each once more.
2. If neither squeue nor sacct answers, the jobs that were asked about are forgotten. So is none that Slurm itself has
   forgotten, or has preempted for good: Snakemake waits for such a job for ever.
3. A submission that raises an error ends in silence, and Snakemake waits for its job for ever. One that is refused,
   because slurmctld restarts, counts as a lost job.
4. A job that is held, that asks for what no node has, or whose account is used up counts as pending, for ever.
5. Variables such as SQUEUE_PARTITION, which a user's shell may set, hide jobs from its questions.
6. Of packed runs, Snakemake adds up all numbers, and the plugin takes the sums also for a task or a node.
7. Where sacct is installed and accounting is disabled, the plugin asks sacct, gets no answer, and waits for ever.

`mend` replaces methods of the executor and functions of the plugin's module. All else stays the plugin's.
"""

import contextlib
import getpass
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path
from typing import Any

from study.core import commands, environment
from study.core.environment import SESSION
from study.core.errors import StudyError
from study.machines import packing
from study.machines.batch_systems.jobs import ANSWER_S, GRACE_POLLS, GRACE_S
from study.machines.job_variables import with_plain_answers

PLUGIN = "snakemake_executor_plugin_slurm"
TESTED = "2.6.1"
PAUSES_S = (2, 4, 8, 16, 32)  # between the tries to submit
# Slurm's job states and flags: https://slurm.schedmd.com/job_state_codes.html. Jobs in the states of GONE do not
# run any more, nor again by themselves; the plugin takes them for running.
GONE = {"LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED", "SPECIAL_EXIT"}
# Reasons of pending jobs (https://slurm.schedmd.com/job_reason_codes.html) for which none starts until a person acts.
HELD = re.compile(
    r"held|JobHold|BadConstraints|DependencyNeverSatisfied|Invalid(Account|QOS)|Partition((Node|Time)Limit|Config)"
    r"|Per(Job|Node)Limit|MinutesLimit",
    re.I,
)
STOPPED = {"SUSPENDED", "STOPPED"}
HELD_S = 72 * 3600.0  # after which such a job is cancelled: three days, over a weekend
LOOK_S = 300.0  # between two looks for such jobs
SACCT_S = 10.0  # in which sacct says that accounting is disabled: it asks nobody for that
NO_ACCOUNTING = "Slurm accounting storage is disabled"  # sacct's words
ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", *GONE}


# Resources that count for each task, GPU or node of a job, not for all of it.
OF_EACH = ("cpus_per_task", "cpus_per_gpu", "mem_mb_per_cpu", "mem_mb", "tasks_per_node", "tasks_per_gpu")


class NotSubmittedError(Exception):
    """The plugin would report a job as failed, since its submission failed."""


def mend(executor: Any) -> None:
    """Mend Snakemake's executor if it is Slurm's; to be called before the first job is submitted.

    Raises `StudyError` if squeue does not tell which jobs an earlier Snakemake left, or if an untested plugin would ask
    sacct where accounting is disabled.
    """
    if type(executor).__module__ != PLUGIN:
        return
    environment.keep_only(with_plain_answers(os.environ))  # also of the plugin's own questions
    found = metadata.version("snakemake-executor-plugin-slurm")
    if found != TESTED:
        print(
            f"warning: snakemake-executor-plugin-slurm {found} is not the tested version {TESTED}, so its faults are "
            "not mended: if Snakemake is killed, cancel its jobs (scancel) before you start it again; jobs of packed "
            "runs request too much",
            file=sys.stderr,
        )
        if executor.get_status_command() == "sacct" and _is_accounting_disabled():
            raise StudyError(
                "Slurm's accounting is disabled, so sacct tells no job's state: give --slurm-status-command squeue, or "
                "write slurm-status-command: squeue in the profile"
            )
        return
    Mended(executor).install()


class Mended:
    """The executor's methods and the module's functions that are replaced."""

    def __init__(self, executor: Any) -> None:
        self.executor = executor
        self.module: Any = sys.modules[PLUGIN]
        self.submit, self.check = executor.run_job, executor.check_active_jobs
        self.report_error = executor._report_job_error_threadsafe
        self.submit_line, self.ask = self.module.get_submit_command, self.module.query_job_status
        self.states: dict[str, str] | None = None  # of Slurm's last answer; None if there was none
        self.missing: dict[str, list[float]] = {}  # job's id to when it was not listed (s, monotonic)
        self.held: dict[str, float] = {}  # job's id to when it was first seen held (s, monotonic)
        self.looked = -math.inf  # for held ones, likewise
        self.left: dict[str, str] = {}  # job's key to the id of an earlier Snakemake's job
        self.thread = threading.local()

    def install(self) -> None:
        """Replace them, and look which jobs an earlier Snakemake left."""
        executor = self.executor
        executor.run_uuid = _name(executor.workflow.executor_settings.jobname_prefix)
        executor.run_job, executor.check_active_jobs = self.run_job, self.check_active_jobs
        executor._report_job_error_threadsafe = self._not_submitted
        self.module.get_submit_command, self.module.query_job_status = self._submit_line, self._ask
        if _is_accounting_disabled():
            self._ask_squeue()
        self.left = self._patiently_listed()
        self._refuse_packed()
        executor.logger.info(f"Slurm's jobs of this folder have the name {executor.run_uuid}.")

    def _ask_squeue(self) -> None:
        """Have squeue tell the states, whatever the setting, and hide sacct.

        Where squeue forgets jobs soon (MinJobAge), the plugin falls back to sacct; `check_active_jobs` needs no sacct.
        """
        is_available = self.module.is_query_tool_available
        self.module.is_query_tool_available = lambda name: name != "sacct" and is_available(name)
        self.executor.get_status_command = lambda: "squeue"
        self.executor.logger.info("Slurm's accounting is disabled, so squeue tells the states of the jobs.")

    def _refuse_packed(self) -> None:
        """Raise `StudyError` if runs are packed into jobs, and jobs are left: other runs may be packed together now."""
        left = sorted(job_id for key, job_id in self.left.items() if key != _completed(key.rpartition(" ")[2]))
        if self.executor.workflow.group_settings.group_components and left:
            raise StudyError(
                f"jobs of an earlier Snakemake are not over: {', '.join(left)}; with --group-components their runs "
                "cannot be told apart. Wait for them, or end them with scancel, then start again"
            )

    def run_job(self, job: Any) -> None:
        """Submit a job, or wait for the one that an earlier Snakemake submitted for it. Never raises."""
        self.thread.submits = True
        said = self._run(job)
        self.thread.submits = False
        if said is not None:
            self.report_error(self.module.SubmittedJobInfo(job), said)

    def _run(self, job: Any) -> str | None:
        """None, or why all tries to submit have failed."""
        key, said = _key(job), ""
        # Once only: if that job fails, the next is a new one.
        listed: dict[str, str] | None = {name: self.left.pop(name, "") for name in (key, _completed(key))}
        for pause_s in (*PAUSES_S, 0):
            try:
                if listed is None:  # the last try may have submitted it, though it got no answer
                    listed = _listed(self.executor.run_uuid)
                if job_id := self._already(job, listed):
                    self._adopt(job, job_id)
                else:
                    self.submit(job)
                return None
            except Exception as error:  # whatever it is, Snakemake must hear of it
                said, listed = str(error), None
                self.executor.logger.warning(f"job {job.jobid} was not submitted: {said.strip()[:1000]}")
                time.sleep(pause_s)
        return said

    async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncIterator[Any]:
        """Yield the jobs that go on; those that the plugin would forget, too."""
        self.states = None
        kept = []
        async for info in self.check(active_jobs):
            kept.append(info)
        if self.states is None:
            kept = active_jobs  # no answer: nothing was reported, and nothing is known
        held = self._held_too_long()
        for info in kept:
            if why := held.get(info.external_jobid):
                self.executor.report_job_error(info, msg=f"Slurm's job {info.external_jobid} was cancelled: {why}. ")
            elif not self._is_gone(info):
                yield info
            elif _are_new(_outputs(info.job)):  # written whole, and last; old ones are those of an earlier run
                self.executor.report_job_success(info)
            else:
                told = (
                    f"Slurm does not list job {info.external_jobid} any more, or as gone, and its output is missing. "
                )
                self.executor.report_job_error(info, msg=told)

    def _is_gone(self, info: Any) -> bool:
        """Whether a job was not listed, or as preempted, in so many answers that it will not come back."""
        if self.states is None:
            return False
        names = self.module._status_lookup_ids(info.external_jobid)
        if any(_state(self.states.get(name, "PREEMPTED")) not in {"PREEMPTED", *GONE} for name in names):
            self.missing.pop(info.external_jobid, None)
            return False
        times = self.missing.setdefault(info.external_jobid, [])
        times.append(time.monotonic())
        return len(times) > GRACE_POLLS and times[-1] - times[0] >= GRACE_S

    def _held_too_long(self) -> dict[str, str]:
        """{job id: why} of this folder's jobs that were held for `HELD_S`, which are cancelled; says when one is."""
        now = time.monotonic()
        if now - self.looked < LOOK_S:
            return {}
        self.looked = now
        try:
            found = held_in(_squeue(self.executor.run_uuid, "%i|%T|%r"))
        except (OSError, subprocess.SubprocessError):
            return {}  # it is asked again later
        for job_id in found.keys() - self.held.keys():
            self.executor.logger.warning(
                f"Slurm's job {job_id} is held, suspended or cannot start: {found[job_id]}. Release it (scontrol "
                f"release {job_id}) or cancel it, else it is cancelled and counts as failed in {HELD_S / 3600:g} hours."
            )
        self.held = {job_id: self.held.get(job_id, now) for job_id in found}
        over = {job_id: found[job_id] for job_id, since in self.held.items() if now - since >= HELD_S}
        if over:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                commands.run(["scancel", *over], ANSWER_S)
        return over

    async def _ask(self, command: str, logger: Any) -> tuple[dict[str, str] | None, float | None]:
        """The plugin's question for the states, whose answer is kept."""
        self.states, duration = await self.ask(command, logger)
        return self.states, duration

    def _submit_line(self, job: Any, params: dict[str, Any], *arguments: Any, **named: Any) -> str:
        """The plugin's sbatch line; its comment names the job by its key."""
        asked = _Packed(job) if job.is_group() else job
        line: str = self.submit_line(
            asked, {**params, "comment_str": f"{params['comment_str']} {_key(job)}"}, *arguments, **named
        )
        return line

    def _not_submitted(self, info: Any, msg: str) -> None:
        """In `run_job`, an error instead of the plugin's report; arrays of jobs are reported as ever."""
        if getattr(self.thread, "submits", False):
            raise NotSubmittedError(msg)
        self.report_error(info, msg)

    def _patiently_listed(self) -> dict[str, str]:
        said = ""
        for pause_s in (*PAUSES_S, 0):
            try:
                return _listed(self.executor.run_uuid)
            except (OSError, subprocess.SubprocessError) as error:
                said = " ".join((getattr(error, "stderr", None) or str(error)).split())[:300]
                time.sleep(pause_s)
        raise StudyError(
            f"squeue does not tell which jobs an earlier Snakemake left here ({said}); start again when it does, or "
            "jobs would be submitted twice"
        )

    def _already(self, job: Any, listed: dict[str, str]) -> str | None:
        """The id of a job of the same key that is not over, or has ended since this Snakemake began."""
        key = _key(job)
        if ended := listed.get(_completed(key)) if _are_new(_outputs(job)) else None:
            return ended
        return listed.get(key)

    def _adopt(self, job: Any, job_id: str) -> None:
        self.executor.logger.info(f"Job {job.jobid} was submitted by an earlier Snakemake as Slurm's job {job_id}.")
        log = self.executor.slurm_logdir / f"{job_id}.log"  # not known: the plugin removes it if it is there
        self.executor._report_job_submission_threadsafe(
            self.module.SubmittedJobInfo(job, external_jobid=job_id, aux={"slurm_logfile": log})
        )


class _Packed:
    """A job of packed runs, with the resources that sbatch shall be asked for."""

    def __init__(self, job: Any) -> None:
        self._job = job

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    @property
    def resources(self) -> Any:
        """The job's; of what counts for each task or node, the most that one of the runs needs."""
        summed, runs = self._job.resources, [run.resources for run in self._job.jobs]
        found = dict(summed.items())
        for name in (*OF_EACH, packing.LEAST_NODES):
            if numbers := _whole([run.get(name) for run in runs]):
                found[name] = max(numbers)
        if packing.LEAST_NODES in found:
            found["nodes"] = max(found["nodes"], found[packing.LEAST_NODES])
            found["tasks"] = max(found["tasks"], found["nodes"])  # of a job with fewer, Slurm leaves nodes out
        if found.get("tasks", 0) > 1:
            found["mpi"] = "srun"  # with GPUs, the plugin asks for the tasks of such jobs only
        return type(summed)(fromdict=found)


def _whole(values: list[Any]) -> list[int]:
    """The whole numbers: what is to be determined in the job is text."""
    return [each for each in values if isinstance(each, int)]


def _name(prefix: str | None) -> str:
    """The name of all jobs of this folder, whichever Snakemake submits them: the plugin's own is new at each start."""
    folder = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{_user()} {Path.cwd().resolve()}"))
    return f"{prefix}_{folder}" if prefix else folder


def _user() -> str:
    """The user's name, else number: a container may have a user that its list of users lacks."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _listed(name: str) -> dict[str, str]:
    """Key to id of each job of this name that is not over; for those that completed, the key is `_completed`.

    The user is asked for by number, since a long name may be cut off. Raises an error if squeue does not answer.
    """
    return jobs_of(_squeue(name, "%i|%T|%k"))


def _is_accounting_disabled() -> bool:
    """Whether sacct says so; without an answer it is not known, so no."""
    try:
        return NO_ACCOUNTING in commands.run(["sacct", "--noheader", "--allocations"], SACCT_S).stderr
    except (OSError, subprocess.TimeoutExpired):
        return False


def _squeue(name: str, form: str) -> str:
    line = ["squeue", "--noheader", "--states", "all", "--user", str(os.getuid()), "--name", name, "--format", form]
    done = commands.run(line, ANSWER_S)
    done.check_returncode()
    return done.stdout


def held_in(answer: str) -> dict[str, str]:
    """{job id: why} of jobs that do not start, or go on, until a person acts. answer: lines ``id|state|reason``."""
    rows = [[each.strip() for each in row.split("|", 2)] for row in answer.splitlines() if row.count("|") >= 2]
    return {
        job_id: f"{_state(state)}, {reason}"
        for job_id, state, reason in rows
        if _state(state) in STOPPED or (_state(state) == "PENDING" and HELD.search(reason))
    }


def jobs_of(answer: str) -> dict[str, str]:
    """What `_listed` gives. answer: lines ``id|state|comment``; arrays of jobs are passed over."""
    found: dict[str, str] = {}
    for row in answer.splitlines():
        job_id, state, comment = ([each.strip() for each in row.split("|", 2)] + ["", ""])[:3]
        key = comment.rpartition(" ")[2]
        if job_id.isdigit() and key and _state(state) not in ENDED - {"COMPLETED"}:
            found[_completed(key) if state == "COMPLETED" else key] = job_id
    return found


def _state(text: str) -> str:
    """The state without what follows it: ``CANCELLED by 1000``, ``CANCELLED+``."""
    return (text.split() or [""])[0].rstrip("+")


def _completed(key: str) -> str:
    """The key under which a job that completed is listed."""
    return f"COMPLETED {key}"


def _key(job: Any) -> str:
    """Tells jobs apart: a digest of what is made, and from which parameters."""
    members = sorted(
        ([str(file) for file in each.output], {name: str(value) for name, value in each.params.items()})
        for each in _members(job)
    )
    return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()[:16]


def _members(job: Any) -> list[Any]:
    """The job, or the jobs of a group."""
    return list(job.jobs) if job.is_group() else [job]


def _outputs(job: Any) -> list[str]:
    return [str(file) for each in _members(job) for file in each.output]


def _are_new(files: list[str]) -> bool:
    """Whether all files were written since this Snakemake began, so after it looked which are missing."""
    began_s = int(os.environ[SESSION].split(".")[0]) / 1e9
    return all(Path(file).exists() and Path(file).stat().st_mtime > began_s for file in files)
