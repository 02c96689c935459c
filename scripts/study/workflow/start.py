"""The start and end of Snakemake: show the plan, refuse jobs before the first one, tell of disturbed blocks."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snakemake.logging import logger

from study import backends, plan
from study.compare import noise_of_runs
from study.core import free_space, installed, paths
from study.core.errors import StudyError, StudyErrors
from study.experiment import progress
from study.instruments import disturbance
from study.launch import batch_job, host_names, model_checks
from study.launch.batch_job import BatchJob
from study.machines import batch_jobs, launchers, machine, queues
from study.prediction import forecast
from study.records import attempts, versions
from study.workflow import lock_holder, passes, snakemake_internals
from study.workflow.timed_plan import TIMED_RULES
from study.workflow.workflow_plan import Plan
from study.workloads import command


def show_plan(planned: Plan) -> None:
    """Print the plan in the main process; a dry run also checks the models."""
    if not planned.is_main_process:
        return
    _require_writable(Path(".snakemake"))
    options = snakemake_internals.parse_command_line(sys.argv[1:])
    if options.unlock:
        lock_holder.require_no_living_holder()
    snakemake_internals.replace_lock_message(lock_holder.explain_lock)
    _require_executor(planned.machine, options.executor)
    results = Path(planned.results)
    passes.note_planned(study=planned.study.name, machine=results.name, results_dir=str(results.parent))
    is_dry = snakemake_internals.is_dry_run(planned.workflow)
    forecasts: list[str] = []
    noise = noise_of_runs.ASSUMED
    if is_dry:  # it reads and fits finished runs, which takes seconds
        forecasts = forecast.forecast(planned.study.runs, planned.results, planned.machine)
        noise = noise_of_runs.estimate_noise_of_study(planned.study, planned.results)
    summary = plan.summarize(
        planned.study, planned.machine, planned.limits, forecasts, planned.chooser, noise, planned.batch_jobs
    )
    warnings = [*installed.warn_of_outdated_packages(Path(sys.prefix), paths.ROOT), *_warn_of_slow_loader(planned)]
    warnings += installed.warn_of_missing_figures() if planned.study.figures else []
    warnings += plan.list_findings_without_value(planned.study)
    warnings += plan.list_unverified_downloads(planned.study)
    messages = [
        *attempts.describe_blocks(planned.again),
        *plan.describe_variables(planned.removed_variables, planned.machine),
    ]
    messages += [f"Warning: {line}" for line in warnings]
    print("\n".join([summary, *(f"  {line}" for line in messages)]), file=sys.stderr)
    if is_dry:
        _require_models(planned)
        if launchers.get_launcher(planned.machine).on_own_hosts:  # a cluster may be planned anywhere
            for why in (
                *_list_missing_frameworks(planned),
                *_list_name_problems(planned),
                *_list_space_problems(planned),
            ):
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


def prepare_jobs(planned: Plan, config: Mapping[str, Any]) -> None:
    """Prepare the jobs that will run: refuse them with `StudyError`, or move earlier outcomes out of their way."""
    workflow = planned.workflow
    if planned.is_main_process:
        lock_holder.note_holder()
        snakemake_internals.end_in_order_at_hangup(workflow)
    if planned.is_main_process and snakemake_internals.get_group_components(workflow) not in ({}, planned.components):
        raise StudyError(
            "--group-components: leave it out: which runs share a batch job follows from the machine's queue"
        )
    to_run = snakemake_internals.list_jobs_to_run(workflow)
    # Data are fetched and converted without an account, on a machine that need not be able to start a run.
    # A module's rules may have a prefix.
    is_timed = any(job.rule.name.endswith(TIMED_RULES) for job in to_run)
    if is_timed:
        _require_runnable(planned)
    if not planned.is_main_process:
        return
    if config.get("keep_versions"):
        versions.keep_other_versions(planned.study, planned.results)
    if is_timed and machine.is_on_launching_host(planned.machine):
        first, *others = disturbance.describe_machine()
        print("\n".join([f"  {first}", *(f"  Warning: {line}" for line in others)]), file=sys.stderr)
        if planned.again and others:
            _wait_for_quiet(planned)
    runs = {job.jobid: planned.get_run(job.wildcards) for job in to_run if job.rule.name.endswith("train")}
    if planned.timed_threads > 1:  # where runs start one after the other, how long the others take can be told
        snakemake_internals.stop_rate_limit(workflow)
        snakemake_internals.expect_early_output(workflow, "make_report")
        logger.addHandler(progress.Reporter(runs))
    if not snakemake_internals.is_touch_only(workflow):
        planned.begin({run.directory for run in runs.values()})


def _wait_for_quiet(planned: Plan) -> str | None:
    """Wait until this machine is quiet, where its runs are: None, or what others use of it when the wait ends."""
    if not machine.is_on_launching_host(planned.machine):
        return None
    limit_s = float(planned.machine.get("wait_for_quiet_s", disturbance.LONGEST_WAIT_S))
    print(f"waiting until other processes leave this machine alone, for at most {limit_s:g} s", file=sys.stderr)
    return disturbance.wait_for_quiet(limit_s, planned.machine.get("disturbance"))


def request_pass_for_disturbed_blocks(planned: Plan) -> None:
    """Have disturbed blocks run again, and print which: by `study run` once the machine is quiet, else by the user.

    By the user: by another Snakemake, if `study run` did not start this one or the machine stays busy.
    """
    if not planned.is_main_process or not planned.begun:
        return
    of_study = planned.study.runs, planned.results, planned.machine
    again = attempts.find_due_blocks(*of_study)
    for line in attempts.describe_still_disturbed(*of_study):
        print(line, file=sys.stderr)
    if not again:
        return
    print("\n".join(attempts.describe_blocks(again)), file=sys.stderr)
    if passes.is_another_pass_possible() and (busy := _wait_for_quiet(planned)):
        print(
            f"not run again now: {busy}; the blocks stay marked, and the same command runs them again", file=sys.stderr
        )
    elif not passes.request_another_pass():
        print(
            "give the same command again for this, without options that force jobs to run; without such options, "
            "study run and make study do so by themselves",
            file=sys.stderr,
        )


def cancel_batch_jobs(planned: Plan) -> None:
    """Cancel the batch jobs of a Snakemake that ends with an error."""
    if planned.is_main_process:
        batch_jobs.cancel_watched()


def _require_runnable(planned: Plan) -> None:
    """Refuse runs that cannot be started here; raises `StudyErrors`."""
    refusals = plan.list_refusals(planned.study, planned.machine, planned.limits)
    if refusals:
        raise StudyErrors(refusals)
    _require_frameworks(planned)
    plan.check_account(planned.machine, os.environ)
    if planned.is_main_process:
        _require_batch_job(planned.machine)
        if problems := [*_list_name_problems(planned), *_list_space_problems(planned)]:
            raise StudyErrors(problems)
        _require_models(planned)
        _refuse_resources(planned)
        if planned.can_submit_commands:
            snakemake_internals.submit_commands(planned.workflow, TIMED_RULES, planned.arrange_lanes, _make_job_line)


def _refuse_resources(planned: Plan) -> None:
    """Refuse default resources of a profile for Slurm that are not read any more."""
    names = snakemake_internals.list_slurm_plugin_resources(planned.workflow)
    if names and planned.machine.get("scheduler") == "slurm":
        raise StudyErrors(
            f"default-resources: {name} has no effect; give sbatch's option as job_options in "
            f"config/machines/{planned.machine['name']}.yaml (docs/machines/slurm.md)"
            for name in names
        )


def _require_batch_job(on: Mapping[str, Any]) -> None:
    """Refuse runs of a machine with a batch system that would start here, outside of a job, as on a login node."""
    executor = snakemake_internals.parse_command_line(sys.argv[1:]).executor
    if executor in (None, queues.LOCAL) and "scheduler" in on and queues.read_job(os.environ, on) is None:
        raise StudyError(
            f"machine {on['name']}: its runs would start on this host, and this is no job of {on['scheduler']}; give "
            "the machine's profile (snakemake --profile NAME), or start it in an interactive job"
        )


def _make_job_line(lanes: list[list[BatchJob]], file: Path, latency_s: float) -> list[str]:
    """Make the command line of a batch job, which reads the job's own commands from a file."""
    batch_job.write_lanes(lanes, file)
    return [sys.executable, str(paths.SCRIPTS / "run_job.py"), "--latency-s", f"{latency_s:g}", str(file)]


def _require_frameworks(planned: Plan) -> None:
    """Refuse runs whose framework is not installed; where jobs may load it themselves, only warn."""
    reasons = _list_missing_frameworks(planned)
    if reasons and launchers.get_launcher(planned.machine).on_own_hosts:
        raise StudyErrors(reasons)
    for reason in reasons:
        print(f"  Warning: {reason}, if the machine's jobs do not load it", file=sys.stderr)


def _warn_of_slow_loader(planned: Plan) -> list[str]:
    """Warn if the study uses loader ``parallel`` and there is no compiled parser here."""
    ours = (run for run in planned.study.runs if not command.is_command(run.spec))
    loaders = {run["loader"] for run in ours}
    loaders.update(name for entry in planned.study.loading for name in entry.loaders)
    return installed.warn_of_missing_parser() if "parallel" in loaders else []


def _list_missing_frameworks(planned: Plan) -> list[str]:
    """List missing frameworks of the runs; a command has its own environment."""
    ours = dict.fromkeys(
        (run["framework"], run["strategy"]) for run in planned.study.runs if not command.is_command(run.spec)
    )
    return list(dict.fromkeys(why for each in ours if (why := backends.explain_missing(*each))))


def _list_name_problems(planned: Plan) -> list[str]:
    """List problems with this host's name, without which runs cannot start here."""
    on_this_host = launchers.get_launcher(planned.machine).on_own_hosts and not planned.machine.get("hosts")
    return host_names.list_name_problems() if on_this_host else []


def _list_space_problems(planned: Plan) -> list[str]:
    """List which folders are too small here: for temporary files, and for the semaphores of Horovod's launcher."""
    remedies = {
        (free_space.get_temporary_folder(os.environ), free_space.LEAST_TEMPORARY_MB): "set TMPDIR to another folder"
    }
    if planned.machine["launcher"] == "horovodrun":
        remedies[free_space.SHARED_MEMORY, free_space.LEAST_SHARED_MB] = (
            "delete what was left there, have root run mount -o remount,rw,mode=1777,size=1g /dev/shm, or give it to a "
            "container (docker run --shm-size 1g)"
        )
    return [
        f"{why}; {remedy}" for place, remedy in remedies.items() if (why := free_space.explain_lack_of_space(*place))
    ]


def _require_models(planned: Plan) -> None:
    """Refuse models of own benchmarks that cannot be trained as the runs promise; it loads TensorFlow."""
    refused, warnings = model_checks.list_refusals(planned.study, planned.machine, planned.data)
    for line in warnings:
        print(f"  Warning: {line}", file=sys.stderr)
    if refused:
        raise StudyErrors(refused)
