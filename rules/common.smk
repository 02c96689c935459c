# The plan of the study and the machine that were asked for, and the names that all rules share.

import sys

from snakemake.exceptions import WorkflowError

try:
    import study
except ModuleNotFoundError:
    raise WorkflowError(
        f"the study library is not installed for {sys.executable}: run make setup and use its .venv, or "
        "pip install --no-deps -e . in this environment"
    ) from None

from study.core import isolation
from study.core.errors import StudyError

# A `StudyError` becomes Snakemake's error here, not in the library: it would print the library's lines as a traceback.
try:
    isolation.require_isolation()  # before the imports below, of which a foreign package would fail
except StudyError as error:
    raise WorkflowError("\n".join(error.lines)) from None

from study.core import paths
from study.data.images.formats import FORMATS
from study.experiment import inputs
from study.machines import launchers
from study.workflow import request, snakemake_internals
from study.workflow.timed_plan import TIMED_RULES, TimedPlan, to_json

CLONE = snakemake_internals.get_rules_folder(workflow).parent
# A batch job's Snakemake trains or measures: it reads two rules, and imports nothing for the others.
IS_JOB = snakemake_internals.is_job_process(workflow, TIMED_RULES, CLONE / "Snakefile", sys.argv[1:])

try:
    request.check_library(CLONE)
    request.correct_config(config, workflow)
    if IS_JOB:
        PLAN = TimedPlan(request.load_request(config, workflow), config, workflow)
    else:
        from study.workflow import start
        from study.workflow.workflow_plan import Plan

        PLAN = Plan(request.load_request(config, workflow), config, workflow)
        start.show_plan(PLAN)
except StudyError as error:
    raise WorkflowError("\n".join(error.lines)) from None

STUDY, MACHINE, DATA, RESULTS, OF_STUDY = PLAN.study, PLAN.machine, PLAN.data, PLAN.results, PLAN.folder
ENVIRONMENT = f"{paths.ROOT}/envs/study.yaml"
RUN = paths.locate_run(RESULTS, "{benchmark}/{dataset}/{point}")
LOADING = paths.locate_loading(RESULTS, "{benchmark}/{dataset}/{measurement}")


wildcard_constraints:
    benchmark="[^/]+",
    dataset="[^/]+",
    point="[^/]+",
    measurement="[^/]+",
    file="[a-z0-9_]+",
    name="[^/]+",
    format="|".join(FORMATS),


onstart:
    try:
        start.prepare_jobs(PLAN, config)
    except StudyError as error:
        raise WorkflowError("\n".join(error.lines)) from None


onsuccess:
    start.request_pass_for_disturbed_blocks(PLAN)


onerror:
    start.cancel_batch_jobs(PLAN)


if snakemake_internals.is_module(workflow):
    snakemake_internals.use_handlers(workflow, onstart, onsuccess, onerror)
