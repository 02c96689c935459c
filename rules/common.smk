# The study and the machine that were asked for, checked, and the paths of everything that is made.

import dataclasses
import json
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from study import plan
from study.core import code_version, configuration, environment, paths
from study.core.errors import StudyError
from study.data import conversion, feature_scaling
from study.experiment import definition, grid
from study.instruments import heartbeats
from study.machines import launchers, packing, queues
from study.machines.batch_systems import jobs
from study.models import synthetic
from study.report.figures.description import describe
from study.report.tables import TABLES

if paths.ROOT != Path(workflow.basedir):
    raise WorkflowError(
        f"this Python's study library is {paths.ROOT}'s, but the Snakefile is {workflow.basedir}'s; "
        "run make setup in the latter and use its .venv"
    )

try:
    configuration.check(config, "config", "config/config.yaml or --config")
    STUDY = grid.load_study(config["study"])
    MACHINE = {"name": config["machine"], **configuration.load_named("machines", config["machine"])}
    plan.check_tables(STUDY)
    plan.check_figures(STUDY)
    plan.check_files(STUDY)
    environment.prepare_for_jobs(config)
except StudyError as error:
    raise WorkflowError(str(error)) from None

ENVIRONMENT = f"{workflow.basedir}/envs/study.yaml"
DATA = config["data_dir"]
RESULTS = f"{config['results_dir']}/{config['machine']}"
RUN = paths.run_folder(RESULTS, grid.run_directory({name: f"{{{name}}}" for name in grid.PARAMETERS}))
RUNS = {run.directory: run for run in STUDY.runs}
TRACED = [f"{paths.run_folder(RESULTS, run.directory)}/activity.csv" for run in STUDY.runs if run.parameters["trace"]]
RECORDS = [paths.record(RESULTS, run.directory) for run in STUDY.runs]
RESULT_FILES = [
    *(f"{RESULTS}/tables/{table}.{form}" for table in STUDY.tables for form in ("csv", "md", "tex", "html")),
    *(f"{RESULTS}/figures/{figure}.{form}" for figure in STUDY.figures for form in ("svg", "pdf")),
    f"{RESULTS}/overview.html",
]
# On the user's own machine a timed job takes all cores, so that no two overlap; elsewhere it has its nodes to itself.
TIMED_THREADS = 1_000_000 if MACHINE["launcher"] in launchers.ON_THIS_HOST else 1
PACKED = packing.asked(sys.argv[1:]) if workflow.is_main_process else {}  # how many runs of a group share a batch job
# Of a job that ends without a word (its node died, it was preempted). The members of a packed one are told apart by hand.
RETRIES = queues.TRIES if "scheduler" in MACHINE and not PACKED else 0


wildcard_constraints:
    **{name: "[^/,~]+" for name in grid.PARAMETERS},
    file="[a-z0-9_]+",
    name="[^/]+",


def run_of(wildcards):
    """The study's run that the wildcards of a run folder name."""
    directory = grid.run_directory(dict(wildcards.items()))
    if directory not in RUNS:
        raise WorkflowError(f"study {STUDY.name} has no run {directory}")
    return RUNS[directory]


def dataset_of(wildcards):
    """The study's dataset that the wildcards name."""
    if (wildcards.benchmark, wildcards.dataset) not in STUDY.datasets:
        raise WorkflowError(f"study {STUDY.name} has no dataset {wildcards.dataset} of {wildcards.benchmark}")
    return STUDY.datasets[wildcards.benchmark, wildcards.dataset]


def measurement_of(wildcards):
    """The study's loading measurement that the wildcards name."""
    return definition.measurement_of(STUDY, wildcards.benchmark, wildcards.dataset)


def as_json(value):
    """One text for equal values: a reordered parameter would make Snakemake run the job again."""
    return json.dumps(value, sort_keys=True)


if workflow.is_main_process:
    print(plan.summary(STUDY, MACHINE, PACKED), file=sys.stderr)


onstart:
    if workflow.is_main_process and dict(workflow.group_settings.group_components) != PACKED:
        raise WorkflowError(
            "give --group-components on the command line, not in a profile: the plan is made from it"
        )
    refused = plan.refused(STUDY, MACHINE, PACKED)
    if refused:
        raise WorkflowError("\n".join(refused))
    try:
        plan.check_account(MACHINE, os.environ)
    except StudyError as error:
        raise WorkflowError(str(error)) from None


onerror:
    if workflow.is_main_process:
        jobs.cancel_watched()
