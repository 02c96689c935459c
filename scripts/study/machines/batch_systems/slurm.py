"""Slurm as on Perlmutter and Frontier: a job's script runs on its first node, srun places the ranks.

``scontrol`` is asked first: it needs no accounting, and no variable of the shell hides a job from it, as those of
squeue do (SQUEUE_PARTITION). It forgets an ended job after MinJobAge; then ``sacct`` is asked. Sources: sbatch(1),
scontrol(1), sacct(1), https://slurm.schedmd.com/job_state_codes.html and job_reason_codes.html.
"""

import re
from collections.abc import Sequence

from study.machines.batch_systems.base import BATCH_SYSTEMS, Job, Scheduler, State

STATES = {
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
OF_SCONTROL = re.compile(r"\bJobState=([A-Z_]+) Reason=(\S*)")
OF_SACCT = re.compile(r"^([A-Z_]+)(\+| by \d+)?$", re.M)  # CANCELLED by 1000
# Reasons for which a pending job does not start until a person acts.
HELD = re.compile(
    r"held|JobHold|BadConstraints|DependencyNeverSatisfied|Invalid(Account|QOS)|Partition((Node|Time)Limit|Config)"
    r"|Per(Job|Node)Limit|MinutesLimit",
    re.I,
)
UNKNOWN = re.compile(r"Invalid job id specified")
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|No such file or directory: 'sacct'")


@BATCH_SYSTEMS.register("slurm")
class Slurm(Scheduler):
    """sbatch, scontrol, sacct, scancel."""

    submit_program = "sbatch"
    job_id_variable = "SLURM_JOB_ID"

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
        lines = answer.strip().splitlines()
        found = re.fullmatch(r"(\d+)(;.*)?", lines[-1].strip()) if lines else None
        return found[1] if found else None

    def status_line(self, job_id: str) -> list[str]:
        """Asks the controller, also for jobs of hidden partitions."""
        return ["scontrol", "--all", "--oneliner", "show", "job", job_id]

    def second_line(self, job_id: str, exit_code: int | None, output: str, errors: str) -> list[str] | None:
        """Asks the accounting for the job, not its steps, if the controller does not know it any more."""
        return ["sacct", "-n", "-P", "-X", "-o", "State", "-j", job_id] if UNKNOWN.search(errors) else None

    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """A job that goes on according to sacct only has been lost: the controller would know it."""
        if exit_code == 0 and (told := OF_SCONTROL.search(output)):
            is_held = told[1] == "PENDING" and HELD.search(told[2])
            return State.HELD if is_held else STATES.get(told[1], State.UNREADABLE)
        if exit_code == 0 and (recorded := OF_SACCT.findall(output)):
            state = STATES.get(recorded[-1][0], State.UNREADABLE)
            return State.FORGOTTEN if state in (State.RUNNING, State.HELD) else state
        is_unknown = exit_code == 0 and not output.strip() and not errors.strip()  # to sacct
        if is_unknown or UNKNOWN.search(errors) or NO_ACCOUNTING.search(errors):
            return State.FORGOTTEN
        return State.UNREADABLE

    def cancel_line(self, job_ids: Sequence[str]) -> list[str]:
        """Several at once."""
        return ["scancel", *job_ids]
