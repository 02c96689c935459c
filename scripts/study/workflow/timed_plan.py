"""The plan of a study's timed jobs, its runs and loading measurements; a batch job's Snakemake needs no more."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from snakemake.exceptions import WorkflowError

from study.core import environment, paths
from study.experiment import earlier_attempts, inputs, run_order, walltimes
from study.experiment.definition import RunDefinition
from study.experiment.study import LoadingMeasurement, PlannedRun
from study.instruments import heartbeats
from study.machines import launchers, queues
from study.workflow import snakemake_internals
from study.workflow.request import Request
from study.workflow.snakemake_internals import Workflow

TIMED_RULES = ("train", "measure_loading")  # whose jobs are runs and loading measurements; all others run locally
# On the user's own machine a timed job takes all cores, so that no two of this Snakemake overlap, nor do they with
# other steps; `study.machines.machine_lock` keeps those of other folders apart. Elsewhere a job has its nodes to
# itself.
ALL_CORES = 1_000_000


class TimedPlan:
    """The inputs and resources of runs and loading measurements, for their rules.

    Args:
        request: the study and the machine.
        config: Snakemake's, checked.
        workflow: Snakemake's.
    """

    def __init__(self, request: Request, config: Mapping[str, Any], workflow: Workflow) -> None:
        self.study, self.machine, self.chooser = request.study, request.machine, request.chooser
        self.workflow, self.is_main_process = workflow, snakemake_internals.is_main_process(workflow)
        self.data: str = config["data_dir"]
        self.results = f"{config['results_dir']}/{self.machine['name']}"
        self.folder = paths.locate_study(self.results, self.study.name)
        self.removed_variables = environment.prepare_for_jobs(config.get("account"), self.is_main_process)
        self.limits = walltimes.Limits(self.study.runs, self.results, self.machine)
        self.timed_threads = ALL_CORES if launchers.get_launcher(self.machine).on_own_hosts else 1
        # Of a lost job (its node died, it was preempted). Of a shared one, runs that have ended keep their outcomes.
        self.retries = queues.TRIES if self._has_queue and self.is_main_process else 0
        self.priorities = run_order.compute_priorities(self.study.runs)
        self._put_aside = earlier_attempts.count_other_attempts(self.study.runs, self.results)
        self._again: set[str] = set()  # directories of runs that this Snakemake runs again

    @property
    def _has_queue(self) -> bool:
        """True if the machine has a batch system."""
        return "scheduler" in self.machine

    # What wildcards name

    def get_run(self, wildcards: Any) -> PlannedRun:
        """Get the study's run that the wildcards of a run's directory name."""
        return self._get_named(
            "run", self.study.runs_by_directory, f"{wildcards.benchmark}/{wildcards.dataset}/{wildcards.point}"
        )

    def get_measurement(self, wildcards: Any) -> LoadingMeasurement:
        """Get the study's loading measurement that the wildcards name."""
        directory = f"{wildcards.benchmark}/{wildcards.dataset}/{wildcards.measurement}"
        return self._get_named("loading measurement", self.study.measurements_by_directory, directory)

    def _get_named(self, what: str, known: Mapping[str, Any], directory: str) -> Any:
        """Get the run or measurement of a directory; raises `WorkflowError` for an unknown one."""
        if directory not in known:
            raise WorkflowError(f"study {self.study.name} has no {what} {directory}")
        return known[directory]

    # Runs

    def list_run_inputs(self, wildcards: Any) -> list[str]:
        """List the files that the run of the wildcards reads."""
        return inputs.list_run_inputs(self.get_run(wildcards), self.machine, self.data)

    def list_loading_inputs(self, wildcards: Any) -> list[str]:
        """List the files of the loading measurement that the wildcards name."""
        return inputs.list_loading_inputs(self.get_measurement(wildcards), self.data)

    def define_run_as_json(self, wildcards: Any) -> str:
        """Define the run that the wildcards name, as JSON; cached, since Snakemake needs it several times."""
        return self._define_as_json(self.get_run(wildcards).directory)

    @functools.cache  # noqa: B019  there is one plan, which lives as long as its process
    def _define_as_json(self, directory: str) -> str:
        """Define the run in a directory, with its attempt, as JSON."""
        defined = self.define_run(directory)
        attempt = 1 + self._put_aside.get(directory, 0) + (directory in self._again)
        return to_json(inputs.to_param(dataclasses.replace(defined, attempt=attempt)))

    @functools.cache  # noqa: B019
    def define_run(self, directory: str) -> RunDefinition:
        """Define the run in a directory."""
        return inputs.define_run(self.study.runs_by_directory[directory], self.machine, self.data)

    def get_limit(self, wildcards: Any, attempt: int = 1) -> walltimes.Limit:
        """Get the time limit of the run that the wildcards name; a second attempt gets another limit."""
        return self.limits.get_limit(self.get_run(wildcards), again=attempt > 1)

    def get_time_limit_s(self, wildcards: Any, attempt: int) -> int:
        """Get the time limit of the run that the wildcards name, in seconds."""
        return int(self.get_limit(wildcards, attempt).limit_s)

    def name_group(self, wildcards: Any) -> str | None:
        """Name Snakemake's group of the run or loading measurement that the wildcards name; None without one."""
        return None  # in a job's Snakemake

    @property
    def group(self) -> Callable[[Any], str | None] | None:
        """`name_group`; None without a batch system."""
        return self.name_group if self._has_queue else None

    def count_threads(self, wildcards: Any) -> int:
        """Number of threads of a run's job, of which a Snakemake in a batch job starts as many as fit its cores."""
        nodes = self.get_run(wildcards).count_nodes(self.machine)
        return ALL_CORES if nodes >= queues.get_smallest_nodes(self.machine) else 1

    @property
    def threads(self) -> int | Callable[[Any], int]:
        """`timed_threads`; in a batch job all cores, so that runs start one after the other, but not small ones."""
        return self.count_threads if self._has_queue and not self.is_main_process else self.timed_threads

    def make_resources(self) -> dict[str, Any]:
        """Make the resources of a run's job: numbers, or functions of wildcards and attempt.

        Functions only where they are needed: Snakemake calls each for each of thousands of runs.
        """
        on = self.machine

        def processes(wildcards: Any) -> int:
            return self.get_run(wildcards).count_processes(on)

        def extendable(wildcards: Any, attempt: int) -> int:
            return int(self.get_limit(wildcards, attempt).is_estimated)

        def jobs_lost(wildcards: Any, attempt: int) -> int:
            return attempt - 1

        return {
            **queues.make_resources(processes, on, self.get_time_limit_s),
            "time_limit_s": self.get_time_limit_s if self._has_queue else on["time_limit_s"],
            "extendable": extendable if self._has_queue else 0,
            "stall_limit_s": on.get("stall_limit_s", heartbeats.LIMIT_S),
            "jobs_lost": jobs_lost if self._has_queue else 0,
        }

    def make_loading_resources(self) -> dict[str, Any]:
        """Make the resources of a loading measurement's job."""
        limit_s = self.machine["time_limit_s"]
        return queues.make_resources(lambda wildcards: 1, self.machine, lambda wildcards, attempt: limit_s)


def to_json(value: object) -> str:
    """Convert to JSON with sorted keys: a reordered parameter would make Snakemake run the job again."""
    return json.dumps(value, sort_keys=True)
