"""Submit Snakemake's jobs to LSF, Cobalt or PBS, tell what became of them, cancel them; called by the profiles."""

import argparse
import os
import sys

from study.core import configuration
from study.core.errors import StudyError, exit_with_message
from study.machines import packing
from study.machines.batch_systems import SCHEDULERS, jobs


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    submit = commands.add_parser("submit", help="prints the job's id")
    submit.add_argument("--machine", required=True, help="whose scheduler and job_options to use")
    submit.add_argument("--nodes", type=int, required=True)
    submit.add_argument("--minutes", type=int, required=True)
    submit.add_argument("--name", default="job")
    submit.add_argument("script", help="Snakemake's job script")
    status = commands.add_parser("status", help="prints running, success or failed, and never fails itself")
    status.add_argument("job")
    cancel = commands.add_parser("cancel")
    cancel.add_argument("job", nargs="+")
    arguments = parser.parse_args()
    {"submit": _submit, "status": _status, "cancel": lambda given: jobs.cancel(given.job)}[arguments.command](arguments)


def _submit(given):
    machine, account = configuration.load_named("machines", given.machine), os.environ.get("STUDY_ACCOUNT")
    if machine.get("scheduler") not in SCHEDULERS:
        raise StudyError(f"config/machines/{given.machine}.yaml: scheduler: must be one of {', '.join(SCHEDULERS)}")
    if not account:
        raise StudyError("STUDY_ACCOUNT is not set: which account or project is the job charged to?")
    options = machine.get("job_options", [])
    nodes = packing.padded(given.nodes, machine)
    print(jobs.submit(machine["scheduler"], given.script, given.name, nodes, given.minutes, account, options))


def _status(given):
    try:
        print(jobs.status(given.job))
    except Exception as error:  # noqa: BLE001  Snakemake would end the study
        print(f"the state of job {given.job} could not be found out: {error!r}", file=sys.stderr)
        print(jobs.RUNNING)


if __name__ == "__main__":
    exit_with_message(main)
