"""Submit, query and cancel Snakemake's jobs on a batch system; called by the profiles."""

import argparse
import os

from study.core import number_types
from study.core.errors import StudyError, exit_with_message
from study.machines import batch_jobs, queues
from study.machines.batch_systems import BATCH_SYSTEMS, Job
from study.machines.machine import load


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    submit = commands.add_parser("submit", help="prints the job's id")
    submit.add_argument("--machine", required=True, help="whose scheduler and job_options to use")
    submit.add_argument("--nodes", type=number_types.count, required=True)
    submit.add_argument("--minutes", type=number_types.count, required=True)
    submit.add_argument("--ranks", type=number_types.count, help="in all; else as many as the nodes can have")
    submit.add_argument("--name", default="job")
    submit.add_argument("script", help="Snakemake's job script")
    status = commands.add_parser("status", help="prints running, success or failed")
    status.add_argument("job")
    cancel = commands.add_parser("cancel")
    cancel.add_argument("job", nargs="+")
    arguments = parser.parse_args()
    {"submit": _submit, "status": _status, "cancel": lambda given: batch_jobs.cancel(given.job)}[arguments.command](
        arguments
    )


def _submit(given):
    machine, account = load(given.machine), os.environ.get("STUDY_ACCOUNT")
    if machine.get("scheduler") not in BATCH_SYSTEMS:
        raise StudyError(f"config/machines/{given.machine}.yaml: scheduler: must be one of {', '.join(BATCH_SYSTEMS)}")
    if not account:
        raise StudyError("STUDY_ACCOUNT is not set: which account or project is the job charged to?")
    most = machine["ranks_per_node"]
    job = Job(
        given.name,
        given.script,
        output="",
        nodes=queues.pad_nodes(given.nodes, given.minutes, machine),
        minutes=given.minutes,
        account=account,
        options=tuple(machine.get("job_options", ())),
        ranks_per_node=min(given.ranks or most, most),
        cores_per_rank=machine["cores_per_rank"],
        gpus_per_rank=machine["gpus_per_rank"],
    )
    print(batch_jobs.submit(machine["scheduler"], job))


def _status(given):
    print(batch_jobs.status(given.job))


if __name__ == "__main__":
    exit_with_message(main)
