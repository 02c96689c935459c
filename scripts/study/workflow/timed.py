"""The runs and loading measurements of a study, as their rules see them; a batch job's Snakemake needs no more."""

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
from study.machines import launchers, machine, queues
from study.machines.queues import Timed
from study.workflow import snakemake_internals
from study.workflow.asked import Asked
from study.workflow.snakemake_internals import Workflow

TIMED_RULES = ("train", "measure_loading")  # whose jobs are runs and loading measurements; all others run locally
# On the user's own machine a timed job takes all cores, so that no two of this Snakemake overlap, nor do they with
# other steps; `study.machines.machine_lock` keeps those of other folders apart. Elsewhere a job has its nodes to
# itself.
ALL_CORES = 1_000_000


class TimedPlan:
    """What the rules of runs and loading measurements ask for.

    Args:
        asked: the study and the machine.
        config: Snakemake's, checked.
        workflow: Snakemake's.
    """

    def __init__(self, asked: Asked, config: Mapping[str, Any], workflow: Workflow) -> None:
        self.study, self.machine, self.chooser = asked.study, asked.machine, asked.chooser
        self.workflow, self.is_main_process = workflow, snakemake_internals.is_main_process(workflow)
        self.data: str = config["data_dir"]
        self.results = f"{config['results_dir']}/{self.machine['name']}"
        self.folder = paths.study_folder(self.results, self.study.name)
        environment.prepare_for_jobs(config.get("account"), self.is_main_process)
        self.limits = walltimes.Limits(self.study.runs, self.results, self.machine)
        self.timed_threads = ALL_CORES if launchers.get_launcher(self.machine).on_own_hosts else 1
        # Of a lost job (its node died, it was preempted). Of a packed one, runs that have ended keep their outcomes.
        self.retries = queues.TRIES if self._has_queue and self.is_main_process else 0
        self.packed: dict[str, int] = {}  # a job's Snakemake packs nothing
        self.priorities = run_order.priorities(self.study.runs)
        self._put_aside = earlier_attempts.numbers(self.study.runs, self.results)
        self._again: set[str] = set()  # directories of runs that this Snakemake runs again

    @property
    def _has_queue(self) -> bool:
        return "scheduler" in self.machine

    # What wildcards name

    def run_of(self, wildcards: Any) -> PlannedRun:
        """The study's run that the wildcards of a run's directory name."""
        return self._named("run", self.study.run_at, f"{wildcards.benchmark}/{wildcards.dataset}/{wildcards.point}")

    def measurement_of(self, wildcards: Any) -> LoadingMeasurement:
        """The study's loading measurement that the wildcards name."""
        directory = f"{wildcards.benchmark}/{wildcards.dataset}/{wildcards.measurement}"
        return self._named("loading measurement", self.study.measurement_at, directory)

    def _named(self, what: str, known: Mapping[str, Any], directory: str) -> Any:
        if directory not in known:
            raise WorkflowError(f"study {self.study.name} has no {what} {directory}")
        return known[directory]

    # Runs

    def run_inputs(self, wildcards: Any) -> list[str]:
        """The files that the run reads which the wildcards name."""
        return inputs.run_inputs(self.run_of(wildcards), self.machine, self.data)

    def loading_inputs(self, wildcards: Any) -> list[str]:
        """The files of the loading measurement that the wildcards name."""
        return inputs.loading_inputs(self.measurement_of(wildcards), self.data)

    def definition(self, wildcards: Any) -> str:
        """The definition of the run that the wildcards name, as JSON; Snakemake asks for it several times."""
        return self._definition(self.run_of(wildcards).directory)

    @functools.cache  # noqa: B019  there is one plan, which lives as long as its process
    def _definition(self, directory: str) -> str:
        defined = self.defined(directory)
        attempt = 1 + self._put_aside.get(directory, 0) + (directory in self._again)
        return as_json(inputs.handed_over(dataclasses.replace(defined, attempt=attempt)))

    @functools.cache  # noqa: B019
    def defined(self, directory: str) -> RunDefinition:
        """The definition of the run in a directory."""
        return inputs.define(self.study.run_at[directory], self.machine, self.data)

    def limit_of(self, wildcards: Any, attempt: int = 1) -> walltimes.Limit:
        """The time limit of the run that the wildcards name; after an attempt that reached it, there is another."""
        return self.limits.of(self.run_of(wildcards), again=attempt > 1)

    def time_limit_s(self, wildcards: Any, attempt: int) -> int:
        """As `limit_of`, in seconds."""
        return int(self.limit_of(wildcards, attempt).limit_s)

    def group_of(self, timed: Timed) -> str | None:
        """Snakemake's group of a run or loading measurement."""
        if self.is_main_process:
            snakemake_internals.pack(self.workflow, self.packed)
        return queues.name_group(timed, self.machine)

    @property
    def group(self) -> Callable[[Any], str | None] | None:
        """`group_of` the run that the wildcards name; None where no run can have one."""
        return (lambda wildcards: self.group_of(self.limit_of(wildcards))) if queues.has_groups(self.machine) else None

    def resources(self) -> dict[str, Any]:
        """The resources of a run's job, numbers or functions of wildcards and attempt.

        Functions only where they are needed: Snakemake calls each for each of thousands of runs.
        """
        on = self.machine

        def processes(wildcards: Any) -> int:
            return self.run_of(wildcards).processes_on(on)

        def extendable(wildcards: Any, attempt: int) -> int:
            return int(self.limit_of(wildcards, attempt).is_estimated)

        def jobs_lost(wildcards: Any, attempt: int) -> int:
            return attempt - 1

        return {
            **queues.make_resources(processes, on, self.time_limit_s),
            "time_limit_s": self.time_limit_s if self._has_queue else on["time_limit_s"],
            "extendable": extendable if self._has_queue else 0,
            "stall_limit_s": on.get("stall_limit_s", heartbeats.LIMIT_S),
            "calibrated": int(self.study.is_calibrated and machine.is_on_launching_host(on)),
            "jobs_lost": jobs_lost if self._has_queue else 0,
        }

    def loading_resources(self) -> dict[str, Any]:
        """The same of a loading measurement's job."""
        limit_s = self.machine["time_limit_s"]
        return queues.make_resources(lambda wildcards: 1, self.machine, lambda wildcards, attempt: limit_s)


def as_json(value: object) -> str:
    """One text for equal values: a reordered parameter would make Snakemake run the job again."""
    return json.dumps(value, sort_keys=True)
