"""What Snakemake's start does besides reading the rules: it shows the plan, and refuses jobs before the first one."""

import os
import signal
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snakemake.logging import logger

from study import backends, plan
from study.compare import noise_of_runs
from study.core import installed, paths
from study.core.errors import StudyError, StudyErrors
from study.experiment import progress
from study.instruments import disturbance
from study.launch import model_checks, own_name
from study.launch.batch_job import BatchJob
from study.machines import batch_jobs, launchers, machine, queues
from study.prediction import forecast
from study.records import attempts, versions
from study.workflow import lock_holder, passes, snakemake_internals
from study.workflow.planned import Plan
from study.workflow.timed import TIMED_RULES
from study.workloads import command

TEMPORARY_MB = 20
SEMAPHORES = "/dev/shm"  # noqa: S108  glibc's folder for them


def show(planned: Plan) -> None:
    """Print the plan, where somebody plans and not in a job; a dry run also checks the models."""
    if not planned.is_main_process:
        return
    _require_writable(Path(".snakemake"))
    asked = snakemake_internals.read_line(sys.argv[1:])
    if asked.unlock:
        lock_holder.require_no_living_holder()
    snakemake_internals.replace_message_of_lock(lock_holder.explain_lock)
    _require_executor(planned.machine, asked.executor)
    results = Path(planned.results)
    passes.note_planned(study=planned.study.name, machine=results.name, results_dir=str(results.parent))
    is_dry = snakemake_internals.is_dry_run(planned.workflow)
    expected: list[str] = []
    noise = noise_of_runs.ASSUMED
    if is_dry:  # it reads and fits finished runs, which takes seconds
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nothing runs that `study plan | head` could leave behind
        expected = forecast.forecast(planned.study.runs, planned.results, planned.machine)
        noise = noise_of_runs.of_finished(planned.study, planned.results)
    lines = plan.summary(
        planned.study, planned.machine, planned.packed, planned.limits, expected, planned.chooser, noise
    )
    warnings = [*installed.other_lock(Path(sys.prefix), paths.ROOT), *_slow_loader(planned)]
    warnings += plan.without_value(planned.study)
    warnings += plan.unverified_downloads(planned.study)
    told = [*attempts.lines(planned.again), *(f"Warning: {line}" for line in warnings)]
    print("\n".join([lines, *(f"  {line}" for line in told)]), file=sys.stderr)
    if is_dry:
        _require_models(planned)
        if launchers.get_launcher(planned.machine).on_own_hosts:  # a cluster may be planned anywhere
            for why in (*_missing_frameworks(planned), *_unknown_names(planned), *_no_semaphores(planned)):
                print(f"  Warning: {why} before the runs start", file=sys.stderr)


def _require_executor(on: Mapping[str, Any], executor: str | None) -> None:
    """Refuse an executor that is not the machine's, such as that of a profile which was made for other workflows."""
    if why := queues.refuse_executor(executor or queues.LOCAL, on):
        is_variable = "SNAKEMAKE_PROFILE" in os.environ and "--profile" not in " ".join(sys.argv)
        profile = (
            f"unset SNAKEMAKE_PROFILE ({os.environ['SNAKEMAKE_PROFILE']})" if is_variable else "change the profile"
        )
        raise StudyError(
            f"{why}; leave out --executor, {profile}, or name the machine that is meant: --config machine=NAME"
        )


def _require_writable(folder: Path) -> None:
    """Refuse a state folder that Snakemake cannot write, which would be a traceback, also of a plan.

    Raises:
        StudyError: with the remedy.
    """
    parts = (folder / name for name in ("log", "locks", "metadata", "incomplete", "iocache"))
    folders = [folder, *(each for each in parts if each.exists())] if folder.exists() else [Path()]
    for each in folders:
        if not os.access(each, os.W_OK | os.X_OK):
            raise StudyError(
                f"{each.resolve()}: Snakemake keeps its state in .snakemake, and you may not write here; start it in a "
                f"folder of your own (docs/module.md), or have the owner change this one's permissions"
            )


def before_jobs(planned: Plan, config: Mapping[str, Any]) -> None:
    """Refuse what cannot be run, before the first job; raises `StudyError`."""
    workflow = planned.workflow
    if planned.is_main_process:
        lock_holder.note_holder()
        snakemake_internals.end_in_order_at_hangup(workflow)
    if planned.is_main_process and snakemake_internals.packed(workflow) != planned.packed:
        raise StudyError("give --group-components on the command line, not in a profile: the plan is made from it")
    to_run = snakemake_internals.jobs_to_run(workflow)
    # Data are fetched and converted without an account, on a machine that need not be able to start a run.
    # A module's rules may have a prefix.
    is_timed = any(job.rule.name.endswith(TIMED_RULES) for job in to_run)
    if is_timed:
        _require_runnable(planned)
    if not planned.is_main_process:
        return
    if config.get("keep_versions"):
        versions.put_aside(planned.study, planned.results)
    if is_timed and machine.is_on_launching_host(planned.machine):
        first, *others = disturbance.describe_machine()
        print("\n".join([f"  {first}", *(f"  Warning: {line}" for line in others)]), file=sys.stderr)
    runs = {job.jobid: planned.run_of(job.wildcards) for job in to_run if job.rule.name.endswith("train")}
    if planned.timed_threads > 1:  # where runs start one after the other, how long the others take can be told
        snakemake_internals.stop_rate_limit(workflow)
        snakemake_internals.expect_early_output(workflow, "make_report")
        logger.addHandler(progress.Reporter(runs))
    if not snakemake_internals.only_touches(workflow):
        planned.begin({run.directory for run in runs.values()})


def after_success(planned: Plan) -> None:
    """Tell of blocks that were disturbed and are run again: by `study run` at once, else by the next Snakemake."""
    if not planned.is_main_process or not planned.begun:
        return
    of_study = planned.study.runs, planned.results, planned.machine
    again = attempts.due(*of_study)
    for line in attempts.still_disturbed(*of_study):
        print(line, file=sys.stderr)
    if not again:
        return
    print("\n".join(attempts.lines(again)), file=sys.stderr)
    if not passes.ask_for_another():
        print(
            "give the same command again for this, without options that force jobs to run; without such options, "
            "study run and make study do so by themselves",
            file=sys.stderr,
        )


def after_error(planned: Plan) -> None:
    """Cancel the batch jobs of a Snakemake that ends with an error."""
    if planned.is_main_process:
        batch_jobs.cancel_watched()


def _require_runnable(planned: Plan) -> None:
    refused = plan.refused(planned.study, planned.machine, planned.packed, planned.limits)
    if refused:
        raise StudyErrors(refused)
    _require_frameworks(planned)
    plan.check_account(planned.machine, os.environ)
    if planned.is_main_process:
        _require_batch_job(planned.machine)
        if why := [*_unknown_names(planned), *_no_semaphores(planned), *_no_temporary_space()]:
            raise StudyErrors(why)
        _require_models(planned)
        _refuse_resources(planned)
        snakemake_internals.submit_commands(planned.workflow, TIMED_RULES, paths.ROOT / "Snakefile", _line_of_job)


def _refuse_resources(planned: Plan) -> None:
    """Refuse default resources of a profile for Slurm that are not read any more."""
    names = snakemake_internals.resources_of_slurm_plugin(planned.workflow)
    if names and planned.machine.get("scheduler") == "slurm":
        raise StudyErrors(
            f"default-resources: {name} has no effect; give sbatch's option as job_options in "
            f"config/machines/{planned.machine['name']}.yaml (docs/machines/slurm.md)"
            for name in names
        )


def _require_batch_job(on: Mapping[str, Any]) -> None:
    """Refuse runs of a machine with a batch system that would start here, outside of a job, as on a login node."""
    executor = snakemake_internals.read_line(sys.argv[1:]).executor
    if executor in (None, queues.LOCAL) and "scheduler" in on and queues.read_job(os.environ, on) is None:
        raise StudyError(
            f"machine {on['name']}: its runs would start on this host, and this is no job of {on['scheduler']}; give "
            "the machine's profile (snakemake --profile NAME), or start it in an interactive job"
        )


def _line_of_job(job: BatchJob, file: Path, latency_s: float) -> list[str]:
    """The command line of a batch job, which reads the job's own command from a file."""
    job.write(file)
    return [sys.executable, str(paths.SCRIPTS / "run_job.py"), "--latency-s", f"{latency_s:g}", str(file)]


def _require_frameworks(planned: Plan) -> None:
    """Refuse runs whose framework is not installed; where jobs may load it for themselves, only warn."""
    found = _missing_frameworks(planned)
    if found and launchers.get_launcher(planned.machine).on_own_hosts:
        raise StudyErrors(found)
    for why in found:
        print(f"  Warning: {why}, if the machine's jobs do not load it", file=sys.stderr)


def _slow_loader(planned: Plan) -> list[str]:
    """That loader ``parallel``, where the study uses it, has no compiled parser here."""
    ours = (run for run in planned.study.runs if not command.is_command(run.spec))
    loaders = {run["loader"] for run in ours}
    loaders.update(name for entry in planned.study.loading for name in entry.loaders)
    return installed.no_parser() if "parallel" in loaders else []


def _missing_frameworks(planned: Plan) -> list[str]:
    """Why runs cannot train here; a command has its own environment."""
    ours = dict.fromkeys(
        (run["framework"], run["strategy"]) for run in planned.study.runs if not command.is_command(run.spec)
    )
    return list(dict.fromkeys(why for each in ours if (why := backends.missing(*each))))


def _unknown_names(planned: Plan) -> list[str]:
    """Why runs cannot start on this host for want of a name; `host_check` looks up the names of listed hosts."""
    on_this_host = launchers.get_launcher(planned.machine).on_own_hosts and not planned.machine.get("hosts")
    return own_name.why_not() if on_this_host else []


def _no_semaphores(planned: Plan) -> list[str]:
    """Why Horovod's launcher cannot start here: it makes semaphores of Python's, which are files in /dev/shm."""
    if planned.machine["launcher"] != "horovodrun" or os.access(SEMAPHORES, os.W_OK | os.X_OK):
        return []
    return [
        f"{SEMAPHORES}: Horovod's launcher writes there, and you may not: have root run "
        f"mount -o remount,rw,mode=1777 {SEMAPHORES}, or in a container give it one (docker run --shm-size 1g)"
    ]


def _no_temporary_space() -> list[str]:
    """Why the folder for temporary files is too small: Snakemake's scheduler, for example, writes there."""
    folder = tempfile.gettempdir()
    free_mb = shutil.disk_usage(folder).free / 1e6
    if free_mb >= TEMPORARY_MB:
        return []
    return [
        f"{folder}: {free_mb:.0f} MB are free for temporary files, {TEMPORARY_MB} MB are needed; set TMPDIR to another"
    ]


def _require_models(planned: Plan) -> None:
    """Refuse models of own benchmarks that cannot be trained as the runs promise; it loads TensorFlow."""
    refused, warnings = model_checks.refusals(planned.study, planned.machine, planned.data)
    for line in warnings:
        print(f"  Warning: {line}", file=sys.stderr)
    if refused:
        raise StudyErrors(refused)
