"""The steps that train a run, submit jobs to a batch system, and run a batch job's command."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from study.commands.options import COUNT, JSON, PATH, SECONDS, SETTINGS, WHOLE, Step, step
from study.core.errors import StudyError

if TYPE_CHECKING:
    from study.experiment.definition import RunDefinition

FLAG = click.Choice(["0", "1"])


@step("launch_training")
@click.option("--definition", type=JSON, help="the run, as JSON")
@click.option("--run", "run_file", type=PATH, help="the run.yaml of an earlier run")
@click.option("--time-limit-s", type=SECONDS, default=3600.0, help="seconds after which the run is ended")
@click.option("--stall-limit-s", type=SECONDS, help="seconds without a heartbeat after which the run is ended")
@click.option(
    "--jobs-lost",
    type=WHOLE,
    default=0,
    help="number of lost batch jobs of this run, or of runs with which it shares one",
)
@click.option(
    "--extendable", type=FLAG, default="0",
    help="1: the time limit was estimated; a run that reaches it is no result, and runs again with more time",
)  # fmt: skip
@click.option(
    "--outcome", type=PATH, required=True, help="outcome.json; what a run without an outcome left there is removed"
)
@click.option("--log", type=PATH, help="the file that says why the run could not be started")
def launch_training(definition: dict[str, Any] | None, run_file: Path | None, log: Path | None, **limits: Any) -> None:
    """Start the ranks of one training run under the machine's launcher and record how it ended.

    A planned run, as its rule calls it: --definition JSON --outcome results/.../outcome.json. A run made before, once
    more: --run results/.../run.yaml --outcome /tmp/again/outcome.json
    """
    if (definition is None) == (run_file is None):
        raise click.UsageError("give --definition or --run, one of them")
    try:
        _train(definition, run_file, **limits)
    except StudyError as error:
        if log:
            from study.core.files import write_text

            write_text(log, "\n".join((*error.lines, "")))
        raise


def _train(
    definition: dict[str, Any] | None, run_file: Path | None, outcome: Path, time_limit_s: float,
    stall_limit_s: float | None, jobs_lost: int, extendable: str,
) -> None:  # fmt: skip
    from study.core.paths import OUTCOME, TIMED_OUT, is_same
    from study.experiment import inputs
    from study.experiment.definition import RunDefinition
    from study.instruments.heartbeats import LIMIT_S
    from study.launch.launch import launch, record_lost_run, set_aside_timed_out
    from study.machines import machine, queues
    from study.records import renewal

    folder, is_extendable = outcome.parent, extendable == "1"
    if outcome.name != OUTCOME:
        raise StudyError(f"--outcome: {outcome} must be named {OUTCOME}, in a folder of its own")
    if run_file and is_same(run_file.parent, folder):
        raise StudyError(f"--outcome: {folder} is the folder of the run itself; give a new one")
    run = RunDefinition.read(run_file, inputs.from_param) if run_file else inputs.from_param(definition)
    begun_again = (folder / TIMED_OUT).exists()  # its job was not lost
    if jobs_lost and not begun_again and record_lost_run(run, folder):
        set_aside_timed_out(folder, is_extendable)
        renewal.make_at_end(folder)
        return
    job = queues.read_job({**os.environ, **run.machine["environment"]}, machine.load_if_declared(run.machine["name"]))
    left_s = queues.compute_seconds_left(job, time.time())  # so that the end of the run is recorded before its job ends
    limit_s = time_limit_s if left_s is None else min(left_s, time_limit_s)
    if not launch(run, folder, limit_s, job, stall_limit_s or LIMIT_S):
        print(f"{outcome}: is there already, of this run; nothing is trained", file=sys.stderr)
        renewal.restore([folder / renewal.FILE])
        return
    _warn_of_disturbance(run, folder)
    _warn_of_unmatched_patterns(run, folder)
    set_aside_timed_out(folder, is_extendable)
    renewal.make_at_end(folder)


def _warn_of_unmatched_patterns(run: "RunDefinition", folder: Path) -> None:
    """Say why patterns of a command found no number in what its program printed."""
    from study.core.files import read_json
    from study.records import program_evidence
    from study.workloads import command

    if not command.is_command(run.benchmark) or not (folder / "metrics.json").exists():
        return
    program = read_json(folder / "metrics.json")["program"]
    for why in program_evidence.explain_metrics(program, epoch_columns=()):
        print(f"{why}; see its train.log", file=sys.stderr)


def _warn_of_disturbance(run: "RunDefinition", folder: Path) -> None:
    from study.instruments import disturbance
    from study.machines import machine

    limits = (machine.load_if_declared(run.machine["name"]) or {}).get("disturbance")
    measured = disturbance.summarize_ended_run(folder)
    reasons = disturbance.list_reasons(measured, limits)
    if reasons:
        print(f"disturbed: {'; '.join(reasons)}", file=sys.stderr)
    elif measured and (doubt := disturbance.explain_unknown(measured, limits)):
        print(f"perhaps disturbed: {doubt}", file=sys.stderr)


@step("run_job")
@click.argument("job", type=PATH)
@click.option("--latency-s", type=SECONDS, default=0.0, help="seconds to wait for files that other nodes write")
def run_job(job: Path, latency_s: float) -> None:
    """Run the commands of a batch job; the profiles submit this, see `study.launch.batch_job`.

    JOB is its file, which Snakemake has written.
    """
    from study.core import environment, isolation, user_cache
    from study.launch import batch_job

    isolation.require_isolation()
    user_cache.provide_user_cache()
    environment.prepare_for_jobs(account=None, is_main_process=False)
    sys.exit(batch_job.run_lanes(job, latency_s))


class Steps(click.Group, Step):
    """Several steps in one script."""


@click.group("cluster", cls=Steps, context_settings=SETTINGS, no_args_is_help=False)
def cluster() -> None:
    """Submit, query and cancel Snakemake's jobs on a batch system; called by the profiles."""


@cluster.command("submit")
@click.option("--machine", required=True, help="whose scheduler and job_options to use")
@click.option("--nodes", type=COUNT, required=True)
@click.option("--minutes", type=COUNT, required=True)
@click.option("--ranks", type=COUNT, help="in all; else as many as the nodes can have")
@click.option("--name", default="job")
@click.argument("script")
def submit_job(machine: str, nodes: int, minutes: int, ranks: int | None, name: str, script: str) -> None:
    """Submit Snakemake's job script and print the job's id."""
    from study.machines import batch_jobs, queues
    from study.machines.batch_systems import BATCH_SYSTEMS, Job
    from study.machines.machine import load

    settings, account = load(machine), os.environ.get("STUDY_ACCOUNT")
    if settings.get("scheduler") not in BATCH_SYSTEMS:
        raise StudyError(f"config/machines/{machine}.yaml: scheduler: must be one of {', '.join(BATCH_SYSTEMS)}")
    if not account:
        raise StudyError("STUDY_ACCOUNT is not set: which account or project is the job charged to?")
    most = settings["ranks_per_node"]
    job = Job(
        name,
        script,
        output="",
        nodes=queues.pad_nodes(nodes, minutes, settings),
        minutes=minutes,
        account=account,
        options=tuple(settings.get("job_options", ())),
        ranks_per_node=min(ranks or most, most),
        cores_per_rank=settings["cores_per_rank"],
        gpus_per_rank=settings["gpus_per_rank"],
    )
    print(batch_jobs.submit(settings["scheduler"], job))


@cluster.command("status")
@click.argument("job")
def print_job_status(job: str) -> None:
    """Print running, success or failed."""
    from study.machines import batch_jobs

    print(batch_jobs.status(job))


@cluster.command("cancel")
@click.argument("job", nargs=-1, required=True)
def cancel_jobs(job: tuple[str, ...]) -> None:
    """Cancel jobs."""
    from study.machines import batch_jobs

    batch_jobs.cancel(list(job))
