"""Batch systems, one registered class each: exact command lines, and what exact answers mean. They execute nothing."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from study.core.files import AnyPath
from study.core.registry import Registry


class State(Enum):
    """State of a job according to the scheduler.

    ``HELD``: it waits until a person does something. ``UNREACHABLE``: it ran when its node was last heard of.
    ``FORGOTTEN``: the scheduler does not know the job. ``UNREADABLE``: no answer.
    """

    RUNNING = "running"  # or waiting for nodes, or ending: not ended
    HELD = "held"  # or suspended, or asking for what the machine does not have
    UNREACHABLE = "unreachable"
    SUCCESS = "success"
    FAILED = "failed"
    OVER = "over"  # ended, without an exit status
    FORGOTTEN = "forgotten"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Job:
    """A batch job to submit.

    script: an executable file. output: where the scheduler puts what the job prints. options: of the machine, such as
    queue, allocation flags and attributes. ranks_per_node: of the runs in the job; where jobs get whole nodes, this and
    what a rank has do not matter.
    """

    name: str
    script: str
    output: str
    nodes: int
    minutes: int
    account: str
    options: tuple[str, ...] = ()
    ranks_per_node: int = 1
    cores_per_rank: int = 1
    gpus_per_rank: int = 0


BATCH_SYSTEMS: Registry[type["Scheduler"]] = Registry("batch system")


def _last_line(answer: str) -> str:
    """The last line of a command's answer, which notices may precede; empty without one."""
    return (answer.strip().splitlines() or [""])[-1].strip()


class Scheduler(ABC):
    """One batch system."""

    submit_program: str
    job_id_variable: str  # of the job's environment
    cancel_words: tuple[str, ...]  # before the ids of jobs to end

    @abstractmethod
    def submit_line(self, job: Job) -> list[str]:
        """The command line, a list, that submits a `Job`."""

    @abstractmethod
    def job_id(self, answer: str) -> str | None:
        """The job's id in what the submit command printed, or None."""

    @abstractmethod
    def status_line(self, job_id: str) -> list[str]:
        """The command line that asks for a job's state."""

    def second_line(self, job_id: str, exit_code: int | None, output: str, errors: str) -> list[str] | None:
        """The command line that asks once more, where the answer to `status_line` is that it may not be asked so."""
        return None

    @abstractmethod
    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """The `State` in the answer of the status command."""

    def cancel_line(self, job_ids: Sequence[str]) -> list[str]:
        """The command line that ends jobs, several at once."""
        return [*self.cancel_words, *job_ids]

    def record(self, job_id: str, folder: AnyPath) -> State:
        """The `State` in what the scheduler records about ended jobs; `State.FORGOTTEN` if it records nothing.

        folder: where the job's output goes.
        """
        return State.FORGOTTEN


COBALT_ACTIVE = {"queued", "starting", "running", "exiting", "killing", "preempting", "preempted", "dep_hold",
                 "maxrun_hold"}  # fmt: skip
COBALT_HELD = {"hold", "user_hold", "admin_hold", "user_hold_run"}


@BATCH_SYSTEMS.register("cobalt")
class Cobalt(Scheduler):
    """qsub, qstat, qdel of Cobalt."""

    submit_program = "qsub"
    job_id_variable = "COBALT_JOBID"
    cancel_words = ("qdel",)

    def submit_line(self, job: Job) -> list[str]:
        """The script must be executable and comes last; output goes to files that begin with PREFIX."""
        prefix = str(Path(job.output).with_suffix(""))
        return ["qsub", "-n", str(job.nodes), "-t", str(job.minutes), "-A", job.account, *job.options,
                "--jobname", job.name, "-O", prefix, job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """The last line is the id; notices may precede it."""
        line = _last_line(answer)
        return line if line.isdigit() else None

    def status_line(self, job_id: str) -> list[str]:
        """Asks for the state only, under its header."""
        return ["qstat", "--header", "State", job_id]

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """Exit code 1 without output means an ended job, but a crashed qstat looks the same."""
        words = output.split()
        state = words[-1].lower() if words and words[0] == "State" else None
        if exit_code == 0 and state in COBALT_HELD:
            return State.HELD
        if exit_code == 0 and state in COBALT_ACTIVE:
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


# RFC 19: base 58 behind the letter f with or without a hook, as the terminal allows. All commands take decimal ids too,
# which need no such letter in file names.
FLUX_JOB_ID = re.compile(r"[ƒf]([1-9A-HJ-NP-Za-km-z]+)")
FLUX_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
# RFC 21's states of a job that is not over, and what flux-jobs before 0.24 called them.
FLUX_WAITING = {"DEPEND", "PRIORITY", "SCHED", "PENDING"}
FLUX_ACTIVE = {"RUN", "CLEANUP", "RUNNING"}
FLUX_ENDED = {"COMPLETED": State.SUCCESS, "FAILED": State.FAILED, "CANCELED": State.FAILED, "TIMEOUT": State.FAILED}
FLUX_HELD_URGENCY = "0"


@BATCH_SYSTEMS.register("flux")
class Flux(Scheduler):
    """flux batch, flux jobs, flux cancel."""

    submit_program = "flux"
    job_id_variable = "FLUX_ENCLOSING_ID"  # of a batch script, which runs in a Flux of its own
    cancel_words = ("flux", "cancel")

    def submit_line(self, job: Job) -> list[str]:
        """Whole nodes; the account is Flux's bank."""
        return ["flux", "batch", f"--nodes={job.nodes}", "--exclusive", f"--time-limit={job.minutes}m",
                f"--setattr=bank={job.account}", *job.options, f"--job-name={job.name}", f"--output={job.output}",
                job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """The last line is the id, here as a decimal number."""
        match = FLUX_JOB_ID.fullmatch(_last_line(answer))
        if match is None:
            return None
        number = 0
        for digit in match[1]:
            number = 58 * number + FLUX_DIGITS.index(digit)
        return str(number)

    def status_line(self, job_id: str) -> list[str]:
        """Asks for the status and the urgency, without a header; a job that is asked for by its id may be over."""
        return ["flux", "jobs", "-n", "-o", "{status} {urgency}", job_id]

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """A job that Flux has purged is unknown, with an exit code of 0 or 1 by its release."""
        status, urgency = [*output.split(), "", ""][:2]
        if exit_code == 0 and status in FLUX_WAITING:
            return State.HELD if urgency == FLUX_HELD_URGENCY else State.RUNNING
        if exit_code == 0 and status in FLUX_ACTIVE:
            return State.RUNNING
        if exit_code == 0 and status in FLUX_ENDED:
            return FLUX_ENDED[status]
        return State.FORGOTTEN if re.search(r"JobID \S+ unknown", errors) else State.UNREADABLE


LSF_STATES = {
    **dict.fromkeys(["PEND", "RUN", "PROV", "WAIT", "FWD_PEND"], State.RUNNING),
    **dict.fromkeys(["PSUSP", "USUSP", "SSUSP"], State.HELD),
    "UNKWN": State.UNREACHABLE,  # the job may continue
    "DONE": State.SUCCESS,
    "EXIT": State.FAILED,
    "ZOMBI": State.FAILED,
}
LSF_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of a site's wrapper


@BATCH_SYSTEMS.register("lsf")
class Lsf(Scheduler):
    """bsub, bjobs, bkill."""

    submit_program = "bsub"
    job_id_variable = "LSB_JOBID"
    cancel_words = ("bkill",)

    def submit_line(self, job: Job) -> list[str]:
        """At most one ``-alloc_flags``, no ``-n`` or ``-R`` with ``-nnodes``, the script as an argument."""
        wall = f"{job.minutes // 60}:{job.minutes % 60:02d}"
        return ["bsub", "-P", job.account, "-W", wall, "-nnodes", str(job.nodes), *job.options, "-J", job.name,
                "-o", job.output, job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """The number in ``Job <123> is submitted to default queue <batch>``."""
        match = re.search(r"^Job <(\d+)> is submitted", answer, re.M)
        return match[1] if match else None

    def status_line(self, job_id: str) -> list[str]:
        """Asks for one word only."""
        return ["bjobs", "-a", "-noheader", "-o", "stat", job_id]

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """A job that LSF has removed is reported on either stream, with exit code 255 or, in older releases, 0."""
        words = [word for line in output.splitlines() if (word := LSF_COLOUR.sub("", line).strip()) in LSF_STATES]
        if exit_code == 0 and words:  # among what a site prints
            return LSF_STATES[words[-1]]
        return State.FORGOTTEN if re.search(r"Job <\d+> is not found", output + errors) else State.UNREADABLE


PBS_JOB_ID = re.compile(r"\d+\.[A-Za-z0-9.-]+")  # Snakemake puts it on the command line that asks for the job's state
# PBS Professional's Reference Guide, table of job states: queued, running, waiting, in transit, exiting, begun (array).
# M, moved to another server, never changes here: not readable.
PBS_ACTIVE = set("QRWTEB")
PBS_HELD = set("HSU")  # held, suspended, suspended by keyboard use
PBS_NEVER = re.compile(r"^\s*comment = .*Can Never Run", re.M | re.I)  # of a queued job, from the scheduler
PBS_ENDED = set("FXC")  # finished, expired (subjob); Torque: completed
# A server whose job_history_enable is off refuses -x (PBSE_JOBHISTNOTSET).
PBS_NO_HISTORY = re.compile(r"not configured to maintain job history|illegal option|invalid option", re.I)


@BATCH_SYSTEMS.register("pbs")
class Pbs(Scheduler):
    """qsub, qstat, qdel of PBS Pro."""

    submit_program = "qsub"
    job_id_variable = "PBS_JOBID"
    cancel_words = ("qdel",)

    def submit_line(self, job: Job) -> list[str]:
        """The machine's options contain queue and file systems, which Polaris requires."""
        wall = f"{job.minutes // 60:02d}:{job.minutes % 60:02d}:00"
        return ["qsub", "-A", job.account, "-l", f"select={job.nodes}", "-l", f"walltime={wall}",
                *job.options, "-N", job.name[:200], "-j", "oe", "-o", job.output, job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """``123.polaris-pbs-01...``, alone on the last line."""
        line = _last_line(answer)
        return line if PBS_JOB_ID.fullmatch(line) else None

    def status_line(self, job_id: str) -> list[str]:
        """Asks for all attributes of the job, ended or not."""
        return ["qstat", "-x", "-f", job_id]

    def second_line(self, job_id: str, exit_code: int | None, output: str, errors: str) -> list[str] | None:
        """Without ``-x`` where the server keeps no history."""
        return ["qstat", "-f", job_id] if exit_code and PBS_NO_HISTORY.search(errors + output) else None

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """``job_state`` and, for an ended job, ``Exit_status``; a server without history forgets ended jobs."""
        state = re.search(r"^\s*job_state = (\w)", output, re.M)
        if exit_code == 0 and state and (state[1] in PBS_HELD or (state[1] == "Q" and PBS_NEVER.search(output))):
            return State.HELD
        if exit_code == 0 and state and state[1] in PBS_ACTIVE:
            return State.RUNNING
        if exit_code == 0 and state and state[1] in PBS_ENDED:
            ended = re.search(r"^\s*Exit_status = (-?\d+)", output, re.M | re.I)
            if ended is None:
                return State.OVER
            return State.SUCCESS if ended[1] == "0" else State.FAILED
        if re.search(r"Job has finished", errors + output):
            return State.OVER
        return State.FORGOTTEN if re.search(r"Unknown Job Id", errors + output, re.I) else State.UNREADABLE


SLURM_STATES = {
    **dict.fromkeys(
        ["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "RESIZING", "SIGNALING",
         "STAGE_OUT", "POWER_UP_NODE", "UPDATE_DB", "EXPEDITING"], State.RUNNING
    ),
    **dict.fromkeys(["SUSPENDED", "STOPPED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"], State.HELD),
    "COMPLETED": State.SUCCESS,
    **dict.fromkeys(
        ["FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"], State.FAILED
    ),
    # Slurm may start a preempted job again; the others do not run any more.
    **dict.fromkeys(["PREEMPTED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL"], State.OVER),
}  # fmt: skip
SCONTROL_STATE = re.compile(r"\bJobState=([A-Z_]+) Reason=(\S*)")
SACCT_STATE = re.compile(r"^([A-Z_]+)(\+| by \d+)?$", re.M)  # CANCELLED by 1000
# Reasons for which a pending job does not start until a person acts.
SLURM_HELD = re.compile(
    r"held|JobHold|BadConstraints|DependencyNeverSatisfied|Invalid(Account|QOS)|Partition((Node|Time)Limit|Config)"
    r"|Per(Job|Node)Limit|MinutesLimit",
    re.I,
)
SLURM_UNKNOWN = re.compile(r"Invalid job id specified")
SLURM_NO_ACCOUNTING = re.compile(r"accounting storage is disabled|No such file or directory: 'sacct'")


@BATCH_SYSTEMS.register("slurm")
class Slurm(Scheduler):
    """sbatch, scontrol, sacct, scancel."""

    submit_program = "sbatch"
    job_id_variable = "SLURM_JOB_ID"
    cancel_words = ("scancel",)

    def submit_line(self, job: Job) -> list[str]:
        """The nodes, and on each the cores and GPUs of its ranks; whole nodes by the machine's options.

        Given the tasks of each node: of a job with so many in all, Slurm may put more on one node than ranks that it
        shall have, and fewer on another; then srun cannot place them.
        """
        gpus = [f"--gres=gpu:{job.ranks_per_node * job.gpus_per_rank}"] if job.gpus_per_rank else []
        return ["sbatch", "--parsable", f"--account={job.account}", f"--nodes={job.nodes}", f"--time={job.minutes}",
                f"--ntasks-per-node={job.ranks_per_node}", f"--cpus-per-task={job.cores_per_rank}", *gpus,
                *job.options, f"--job-name={job.name}", f"--output={job.output}", job.script]  # fmt: skip

    def job_id(self, answer: str) -> str | None:
        """The last line is the id, and behind a semicolon the cluster."""
        match = re.fullmatch(r"(\d+)(;.*)?", _last_line(answer))
        return match[1] if match else None

    def status_line(self, job_id: str) -> list[str]:
        """Asks the controller, also for jobs of hidden partitions."""
        return ["scontrol", "--all", "--oneliner", "show", "job", job_id]

    def second_line(self, job_id: str, exit_code: int | None, output: str, errors: str) -> list[str] | None:
        """Asks the accounting for the job, not its steps, if the controller does not know it any more."""
        return ["sacct", "-n", "-P", "-X", "-o", "State", "-j", job_id] if SLURM_UNKNOWN.search(errors) else None

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """A job that goes on according to sacct only has been lost: the controller would know it."""
        if exit_code == 0 and (answer := SCONTROL_STATE.search(output)):
            is_held = answer[1] == "PENDING" and SLURM_HELD.search(answer[2])
            return State.HELD if is_held else SLURM_STATES.get(answer[1], State.UNREADABLE)
        if exit_code == 0 and (recorded := SACCT_STATE.findall(output)):
            state = SLURM_STATES.get(recorded[-1][0], State.UNREADABLE)
            return State.FORGOTTEN if state in (State.RUNNING, State.HELD) else state
        is_unknown = exit_code == 0 and not output.strip() and not errors.strip()  # to sacct
        if is_unknown or SLURM_UNKNOWN.search(errors) or SLURM_NO_ACCOUNTING.search(errors):
            return State.FORGOTTEN
        return State.UNREADABLE
