# The study and the machine that were asked for, checked, and the paths of everything that is made.

import dataclasses
import functools
import json
import os
import sys
import time
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

try:
    import study
except ModuleNotFoundError:
    raise WorkflowError(
        f"the study library is not installed for {sys.executable}: run make setup and use its .venv, or "
        "pip install --no-deps -e . in this environment"
    ) from None

from study.core import isolation
from study.core.errors import StudyError

try:
    isolation.require()  # before the imports below, of which a foreign package would fail
except StudyError as error:
    raise WorkflowError(str(error)) from None

from study import plan
from study.core import checked, code_version, configuration, environment, paths
from study.data import conversion, feature_scaling
from study.data.images import conversion as images
from study.data.images.formats import FORMATS
from study.experiment import expansion, inputs, progress, schedule, walltimes
from study.instruments import heartbeats
from study.launch import model_checks
from study.machines import launchers, machine, packing, profile_files, queues, slurm_plugin, storage
from study.machines.batch_systems import jobs
from study.prediction import forecast, goals, mechanisms
from study.records import noise_of_runs, read_tests, references, table_inputs, versions
from study.records.stamp import stamp
from study.report import sources
from study.report.figures.description import describe
from study.report.findings import declaration
from study.report.page import files as page_files
from study.report.tables import TABLES

# Not `workflow.basedir`: where this Snakefile is a module of another, that is the other's folder.
FOLDER = Path(str(workflow.current_basedir)).parent
if not paths.is_same(paths.ROOT, FOLDER):
    raise WorkflowError(
        f"this Python's study library is {paths.ROOT}'s, but the Snakefile is {FOLDER}'s; "
        "run make setup in the latter and use its .venv (docs/module.md)"
    )

if workflow.is_main_process:
    # Put back the file in which a profile names its machine, also for the jobs' own Snakemake.
    try:
        hidden = profile_files.hidden(sys.argv[1:], os.environ, workflow.config_settings.configfiles)
        config.update(profile_files.values(hidden, workflow.config_settings.overwrite_config))
    except StudyError as error:
        raise WorkflowError(str(error)) from None
    workflow.config_settings.configfiles[:0] = hidden

try:
    plan.check_deployment(method.name for method in workflow.deployment_settings.deployment_method)
    if workflow.modifier.is_main_snakefile():  # else these files are those of the workflow that uses this one
        read = [*workflow.configfiles, *workflow.overwrite_configfiles]  # the latter are in both, and go over all
    else:
        read = []
    command_line = workflow.config_settings
    config.update(configuration.as_meant(config, read, command_line.config_args or (), command_line.config))
    checked.check(config, "config", "config/config.yaml or --config")
    paths.check_folders({key: config[key] for key in ("data_dir", "results_dir")})
    MACHINE = machine.load(config["machine"])
    study_named, CHOSEN = configuration.study_of(config["machine"])
    if "study" in config:
        CHOSEN = "--config chose it" if "study" in command_line.config else "a configuration file chose it"
    config.setdefault("study", study_named)
    STUDY = expansion.load_study(config["study"])
    os.environ[expansion.PLANNED] = expansion.digest(STUDY)
    ELSEWHERE = table_inputs.elsewhere(STUDY, Path(config["results_dir"]) / MACHINE["name"])
    plan.check_results(STUDY)
    OF_FINDINGS = sources.of_findings(STUDY)
    sources.check_further(STUDY)
    plan.check_files(STUDY)
    plan.check_storage(STUDY, MACHINE)
    mechanisms.declared()
    plan.check_downloads(STUDY, config["data_dir"])
    plan.check_references(STUDY)
    environment.prepare_for_jobs(config.get("account"), workflow.is_main_process)
except StudyError as error:
    raise WorkflowError(str(error)) from None

ENVIRONMENT = f"{paths.ROOT}/envs/study.yaml"
DATA = config["data_dir"]
STRIPED = storage.striped([(run["storage"], run["lustre_stripes"]) for run in STUDY.runs], MACHINE, DATA)
RESULTS = f"{config['results_dir']}/{MACHINE['name']}"
RUN = paths.run_folder(RESULTS, "{benchmark}/{dataset}/{point}")
LOADING = paths.loading(RESULTS, "{benchmark}/{dataset}/{measurement}")
OF_STUDY = paths.study_folder(RESULTS, STUDY.name)
TIMED = ("train", "measure_loading")  # the rules whose jobs are runs and loading measurements
PRIORITIES = schedule.priorities(STUDY.runs)


def measurements(loading):
    """The files of loading measurements."""
    return [paths.loading(RESULTS, measurement.directory) for measurement in loading]


RECORDS = [paths.record(RESULTS, run.directory) for run in STUDY.runs]
MEASURED = [*RECORDS, *measurements(STUDY.loading)]
RESULT_FILES = [
    *(f"{OF_STUDY}/tables/{table}.{form}" for table in STUDY.tables for form in ("csv", "md", "tex", "html")),
    *(f"{OF_STUDY}/figures/{figure}.{form}" for figure in STUDY.figures for form in ("svg", "pdf")),
    *(f"{OF_STUDY}/findings.{form}" for form in ("json", "md") if STUDY.findings),
    # Of themselves, too: as inputs of the report they would not be made again if they were deleted.
    f"{OF_STUDY}/runs.csv",
    f"{OF_STUDY}/loading.csv",
    f"{OF_STUDY}/report.html",
]
if workflow.is_main_process:
    try:
        plan.check_made(RESULT_FILES)
        plan.check_read(MEASURED, f"{OF_STUDY}/runs.csv", RESULT_FILES)
        of_users = [path for dataset in STUDY.datasets.values() for path in inputs.user_files(dataset)]
        plan.check_times([*of_users, *paths.published(paths.ROOT), *MEASURED], time.time())
    except StudyError as error:
        raise WorkflowError("\n".join(error.lines)) from None
# On the user's own machine a timed job takes all cores, so that no two of this Snakemake overlap, nor do they with other
# steps; `study.machines.machine_lock` keeps those of other folders apart. Elsewhere a job has its nodes to itself.
TIMED_THREADS = 1_000_000 if launchers.of(MACHINE).on_own_hosts else 1
CALIBRATED = STUDY.is_calibrated and machine.trains_on_launching_host(MACHINE)
LIMITS = walltimes.Limits(STUDY.runs, RESULTS, MACHINE)
# How many runs of a group share a batch job: as asked for, else as many as fill it.
PACKED = packing.asked(sys.argv[1:]) if workflow.is_main_process else {}
if workflow.is_main_process and packing.has_groups(MACHINE) and not PACKED:
    PACKED = packing.advised(plan.timed(STUDY, LIMITS), MACHINE, {})
# Of a lost job (its node died, it was preempted). Of a packed one, runs that have ended keep their outcomes.
RETRIES = queues.TRIES if "scheduler" in MACHINE and workflow.is_main_process else 0
# Functions only where they are needed: Snakemake calls each for each of thousands of runs.
JOBS_LOST = (lambda wildcards, attempt: attempt - 1) if "scheduler" in MACHINE else 0
EXTENDABLE = (
    (lambda wildcards, attempt: int(limit_of(wildcards, attempt).is_estimated)) if "scheduler" in MACHINE else 0
)
GROUP = (lambda wildcards: group_of(limit_of(wildcards))) if packing.has_groups(MACHINE) else None


wildcard_constraints:
    benchmark="[^/]+",
    dataset="[^/]+",
    point="[^/]+",
    measurement="[^/]+",
    file="[a-z0-9_]+",
    name="[^/]+",
    format="|".join(FORMATS),


def run_of(wildcards):
    """The study's run that the wildcards of a run's directory name."""
    directory = f"{wildcards.benchmark}/{wildcards.dataset}/{wildcards.point}"
    if directory not in STUDY.run_at:
        raise WorkflowError(f"study {STUDY.name} has no run {directory}")
    return STUDY.run_at[directory]


def limit_of(wildcards, attempt=1):
    """The time limit of the run that the wildcards name; after an attempt that reached it, there is another."""
    return LIMITS.of(run_of(wildcards), again=attempt > 1)


def time_limit_s(wildcards, attempt):
    """As `limit_of`, in seconds."""
    return int(limit_of(wildcards, attempt).limit_s)


def group_of(timed):
    """Snakemake's group of a run or loading measurement."""
    if workflow.is_main_process:
        packing.tell_snakemake(workflow, PACKED)
    return packing.group(timed, MACHINE)


@functools.cache
def _defined(directory):
    definition = inputs.define(STUDY.run_at[directory], MACHINE, DATA)
    return {"definition": as_json(inputs.handed_over(definition)), "fingerprint": definition.fingerprint}


def defined(wildcards):
    """The definition of the run that the wildcards name, as JSON, and its fingerprint; made once for both its jobs."""
    return _defined(run_of(wildcards).directory)


def dataset_of(wildcards):
    """The study's dataset that the wildcards name."""
    if (wildcards.benchmark, wildcards.dataset) not in STUDY.datasets:
        raise WorkflowError(f"study {STUDY.name} has no dataset {wildcards.dataset} of {wildcards.benchmark}")
    return STUDY.datasets[wildcards.benchmark, wildcards.dataset]


def measurement_of(wildcards):
    """The study's loading measurement that the wildcards name."""
    directory = f"{wildcards.benchmark}/{wildcards.dataset}/{wildcards.measurement}"
    if directory not in STUDY.measurement_at:
        raise WorkflowError(f"study {STUDY.name} has no loading measurement {directory}")
    return STUDY.measurement_at[directory]


@functools.cache
def sources_of(of, name):
    """What the study's table or figure ``name`` is made from. of: `sources.of_table` or `sources.of_figure`."""
    try:
        return of(STUDY, name, ELSEWHERE)
    except StudyError as error:
        raise WorkflowError(str(error)) from None


def records_of(name, runs):
    """The records of another machine's runs."""
    return [paths.record(paths.beside(RESULTS, name), run.directory) for run in runs]


def made_from(of, name):
    """The records and loading measurements that a table or figure is made from, for `input`."""
    found = sources_of(of, name)
    return {
        "records": [paths.record(RESULTS, run.directory) for run in found.runs],
        "loading": measurements(found.loading),
        # Of other machines: those that are there, so that none is started.
        "further": [record for each in found.further for record in records_of(each, found.further[each])],
        "activity": [f"{paths.run_folder(RESULTS, run.directory)}/activity.csv" for run in found.traced],
        # Somebody called for it, or not: it is no run's.
        "read_test": (
            [str(read_tests.file(RESULTS))] if found.reads_storage and read_tests.file(RESULTS).exists() else []
        ),
    }


def rows_of(of, name):
    """What the rows of a table or figure have beside their records."""
    found = sources_of(of, name)
    return as_json(table_inputs.beside_records(found.runs, found.loading, MACHINE, found.further))


def require_models():
    """Refuse models of own benchmarks that cannot be trained as the runs promise; it loads TensorFlow."""
    refused, warnings = model_checks.refusals(STUDY, MACHINE, DATA)
    for line in warnings:
        print(f"  Warning: {line}", file=sys.stderr)
    if refused:
        raise WorkflowError("\n".join(refused))


def as_json(value):
    """One text for equal values: a reordered parameter would make Snakemake run the job again."""
    return json.dumps(value, sort_keys=True)


if workflow.is_main_process:
    # It reads and fits finished runs, which takes seconds: only where somebody plans.
    expected, noise = (), noise_of_runs.ASSUMED
    if workflow.output_settings.dryrun:
        expected = forecast.forecast(STUDY.runs, RESULTS, MACHINE)
        noise = noise_of_runs.of_finished(STUDY, RESULTS)
    print(plan.summary(STUDY, MACHINE, PACKED, LIMITS, expected, CHOSEN, noise), file=sys.stderr)
    if workflow.output_settings.dryrun:
        require_models()


onstart:
    if workflow.is_main_process and dict(workflow.group_settings.group_components) != PACKED:
        raise WorkflowError(
            "give --group-components on the command line, not in a profile: the plan is made from it"
        )
    try:
        # Data are fetched and converted without an account, on a machine that need not be able to start a run.
        # A module's rules may have a prefix.
        if any(job.rule.name.endswith(TIMED) for job in workflow.dag.needrun_jobs()):
            refused = plan.refused(STUDY, MACHINE, PACKED, LIMITS)
            if refused:
                raise WorkflowError("\n".join(refused))
            plan.check_account(MACHINE, os.environ)
            if workflow.is_main_process:
                require_models()
                slurm_plugin.mend(workflow.scheduler._executor)
        if config.get("keep_versions") and workflow.is_main_process:
            versions.put_aside(STUDY, RESULTS)
        # Where runs start one after the other, how long the others take can be told.
        if workflow.is_main_process and TIMED_THREADS > 1:
            # For its limit of jobs per second, Snakemake selects jobs anew every second while a run trains, and once more
            # per second for each run that has ended: in a study of hundreds of runs, most of a core that is measured.
            workflow.scheduler.job_rate_limiter = None
            to_do = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
            logger.addHandler(progress.Reporter({job.jobid: run_of(job.wildcards) for job in to_do}))
    except StudyError as error:
        raise WorkflowError(str(error)) from None


onerror:
    if workflow.is_main_process:
        jobs.cancel_watched()


if not workflow.modifier.is_main_snakefile():
    # Snakemake does not run the handlers of a module. Without them, a job that the queue forbids would be submitted.
    workflow._onstart, workflow._onerror = onstart.func, onerror.func
