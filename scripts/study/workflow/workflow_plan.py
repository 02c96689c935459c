"""The plan of a workflow: the files that a study makes on a machine, and each rule's inputs for its wildcards."""

import collections
import functools
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.io import ancient
from snakemake.ioflags import before_update

from study import plan
from study.compare.references import LEAST_REPEATS as LEAST_BLOCKS
from study.core import paths
from study.core.errors import StudyError
from study.core.files import read_seal
from study.experiment import conversions, expansion, finished_runs, inputs
from study.experiment.study import Dataset, LoadingMeasurement, PlannedRun
from study.launch import run_directory
from study.machines import queues, storage
from study.prediction import scaling_model
from study.records import attempts, record, renewal, table_inputs
from study.report import sources
from study.workflow import snakemake_internals
from study.workflow.request import Request
from study.workflow.snakemake_internals import Workflow
from study.workflow.timed_plan import TIMED_RULES, TimedPlan, to_json


def _name_timed(wildcards: Any) -> str:
    """Name the run or loading measurement of wildcards: its directory, as in `study.plan.share_batch_jobs`."""
    if hasattr(wildcards, "point"):
        return f"{wildcards.benchmark}/{wildcards.dataset}/{wildcards.point}"
    return f"{plan.LOADING}/{wildcards.benchmark}/{wildcards.dataset}/{wildcards.measurement}"


class Plan(TimedPlan):
    """A study on a machine, as the rules see it.

    Args:
        request: the study and the machine.
        config: Snakemake's, checked.
        workflow: Snakemake's.

    Raises:
        StudyError: what cannot be planned, before anything is submitted.
    """

    def __init__(self, request: Request, config: Mapping[str, Any], workflow: Workflow) -> None:
        super().__init__(request, config, workflow)
        self._config = config
        self.elsewhere = table_inputs.elsewhere(self.study, Path(self.results))
        plan.check_results(self.study)
        self.of_findings = sources.select_finding_sources(self.study)
        sources.check_further(self.study)
        plan.check_files(self.study)
        plan.check_storage(self.study, self.machine)
        scaling_model.load_calibration()
        plan.check_downloads(self.study, self.data)
        plan.check_references(self.study)
        self.again: list[attempts.Again] = []
        self.begun: set[str] = set()  # directories of the runs that this Snakemake starts
        self._are_results_stale = False  # True if they were made of other records than those that are there
        self._replaced: dict[str, str | None] = {}  # {directory of a finished run that is trained again: its checksum}
        self.batch_jobs: list[queues.SharedJob] = []
        if self.is_main_process:
            self.batch_jobs = plan.share_batch_jobs(self.study, self.machine, self.limits)
            snakemake_internals.measure_groups(workflow, TIMED_RULES, self.measure_group)
            expansion.note_planned_runs(self.define_run(run.directory).fingerprint for run in self.study.runs)
            self.again = attempts.find_due_blocks(self.study.runs, self.results, self.machine)
            self._again = {run.directory for each in self.again for run in each.runs}
            self._check_results()

    # Batch jobs

    @functools.cached_property
    def _groups(self) -> dict[str, str]:
        """{run or loading measurement: Snakemake's group} of what shares a batch job, which Snakemake is told.

        Runs in a batch job of a Snakemake that was killed stay in that job. To be asked for while Snakemake makes jobs.
        """
        groups = {name: each.name for each in self.batch_jobs if each.name for lane in each.lanes for name in lane}
        for run in self.study.runs:
            if run.directory in groups:
                outcome = paths.locate_outcome(self.results, run.directory)
                if job_id := snakemake_internals.find_batch_job(self.workflow, outcome):
                    groups[run.directory] = f"resumed_{job_id}"
        snakemake_internals.set_group_components(self.workflow, collections.Counter(groups.values()))
        return groups

    @property
    def components(self) -> dict[str, int]:
        """{Snakemake's group: number of runs and loading measurements in it}."""
        return dict(collections.Counter(self._groups.values()))

    def name_group(self, wildcards: Any) -> str | None:
        """Name Snakemake's group of the run or loading measurement that the wildcards name; None without one."""
        return self._groups.get(_name_timed(wildcards)) if self.batch_jobs else None

    @functools.cached_property
    def can_submit_commands(self) -> bool:
        """True if batch jobs start the commands of runs, and no Snakemake that plans them anew."""
        return snakemake_internals.can_submit_commands(self.workflow, paths.ROOT / "Snakefile")

    def arrange_lanes(self, jobs: Iterable[Any]) -> list[list[Any]]:
        """Arrange the jobs of a group in the lanes of its batch job, those of a lane in the order of the runs.

        What has ended in an earlier attempt is left out: a run that was lost is made again alone.
        """
        to_come = [job for job in jobs if job.attempt == 1 or not Path(job.output[0]).exists()]
        ordered = sorted(to_come, key=lambda job: self._places[_name_timed(job.wildcards)])
        by_lane = itertools.groupby(ordered, key=lambda job: self._places[_name_timed(job.wildcards)][0])
        return [list(lane) for _, lane in by_lane]

    @functools.cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """{run or loading measurement: (its lane's number among those of all batch jobs, its place in the lane)}."""
        lanes = (lane for each in self.batch_jobs for lane in each.lanes)
        return {name: (number, place) for number, lane in enumerate(lanes) for place, name in enumerate(lane)}

    def measure_group(self, jobs: Sequence[Any]) -> dict[str, int]:
        """Measure what the batch job of a group requests, as resources; empty if a Snakemake starts its small runs."""
        lanes = self.arrange_lanes(jobs)
        if len(lanes) > 1 and not self.can_submit_commands:
            return {}  # all at once
        timed = [[self._get_timed(job) for job in lane] for lane in lanes]
        nodes, minutes = queues.measure_job(timed, self.machine)
        ranks = max((each.ranks for lane in timed for each in lane), default=1)
        return {"nodes": nodes, "runtime": minutes, "tasks": ranks}

    def _get_timed(self, job: Any) -> queues.Timed:
        """Get what a job needs of its batch job."""
        is_run = job.rule.name.endswith("train")
        return self.get_limit(job.wildcards, job.attempt) if is_run else self.limits.get_load_limit()

    # Files

    def list_measurements(self, loading: Iterable[LoadingMeasurement]) -> list[str]:
        """List the files of loading measurements; one that stays is no job's output, as in `list_outcomes`."""
        there = ((each.directory, paths.locate_loading(self.results, each.directory)) for each in loading)
        return [before_update(path) if self._is_measured(directory) else path for directory, path in there]

    def list_records(self, runs: Iterable[PlannedRun], on: str | None = None) -> list[str]:
        """List the records of runs. on: the machine, if it is another one."""
        folder = self.results if on is None else paths.locate_other_machine(self.results, on)
        return [paths.locate_record(folder, run.directory) for run in runs]

    def _list_ended(self, runs: Iterable[PlannedRun], on: str) -> list[str]:
        """List the records of another machine's finished runs, or their outcomes where there is no record."""
        folder = paths.locate_other_machine(self.results, on)
        there = (
            (paths.locate_record(folder, run.directory), paths.locate_outcome(folder, run.directory)) for run in runs
        )
        return [record if Path(record).exists() else outcome for record, outcome in there]

    def list_outcomes(self, runs: Iterable[PlannedRun]) -> list[str]:
        """List the outcomes of runs, which they write last. To be called while Snakemake makes the jobs.

        One that stays is no job's output, whatever times and Snakemake's metadata say. Results read the record
        too, so all are made again if a record is another one.
        """
        if self._are_results_stale:
            snakemake_internals.force_files(self.workflow, self.result_files)
        there = ((run, paths.locate_outcome(self.results, run.directory)) for run in runs)
        return [before_update(path) if self._is_kept(run.directory) else path for run, path in there]

    @functools.cache  # noqa: B019  there is one plan, which lives as long as its process
    def _is_kept(self, directory: str) -> bool:
        """True if the outcome of a run is there, of the run's definition, and not trained again."""
        path, run = paths.locate_outcome(self.results, directory), self.study.runs_by_directory[directory]
        if not self.is_main_process or not Path(path).exists():  # the main process has planned what is trained again
            return Path(path).exists()
        is_kept = (
            directory not in self._again
            and not snakemake_internals.is_forced(self.workflow, "train", path)
            and (self._is_outcome_of(run, Path(path).parent) or self._find_replaced(run) is not None)
        )
        if not is_kept:
            self._replaced[directory] = read_seal(path)
        return is_kept

    def _is_outcome_of(self, run: PlannedRun, folder: Path) -> bool:
        """True if a folder has the outcome of a run as it is defined now, trained on the data that are there."""
        has_other_data = functools.partial(finished_runs.has_other_source, run.dataset, self.data)
        return finished_runs.is_finished(self.define_run(run.directory), folder, has_other_data)

    def _find_replaced(self, run: PlannedRun) -> Path | None:
        """Find the folder of a replaced outcome that is of the run as it is defined now; None without one."""
        folders = run_directory.list_replaced(Path(paths.locate_run(self.results, run.directory)))
        return next((folder for folder in folders if self._is_outcome_of(run, folder)), None)

    def _restore_replaced(self) -> None:
        """Restore replaced outcomes where the study's definition is again theirs.

        Only where another definition's outcome is now: a folder that was deleted shall run again.
        """
        if not (Path(self.results) / paths.REPLACED).is_dir():
            return
        for run in self.study.runs:
            folder = Path(paths.locate_run(self.results, run.directory))
            is_of_another = (folder / paths.OUTCOME).exists() and not self._is_outcome_of(run, folder)
            if is_of_another and (kept := self._find_replaced(run)) is not None:
                run_directory.restore_replaced(folder, kept)

    @functools.cache  # noqa: B019  there is one plan, which lives as long as its process
    def _is_measured(self, directory: str) -> bool:
        """True if a loading measurement is there, of the data that are there; as `_is_kept`."""
        path, dataset = (
            paths.locate_loading(self.results, directory),
            self.study.measurements_by_directory[directory].dataset,
        )
        if not self.is_main_process or not Path(path).exists():
            return Path(path).exists()
        if snakemake_internals.is_forced(self.workflow, "measure_loading", path):
            return False
        return finished_runs.is_measured(path, functools.partial(finished_runs.has_other_source, dataset, self.data))

    def list_loading_inputs(self, wildcards: Any) -> list[str]:
        """List a measurement's files; one that is there stays, or is made again, as in `list_run_inputs`."""
        directory, read = self.get_measurement(wildcards).directory, super().list_loading_inputs(wildcards)
        if self._is_measured(directory):
            return [ancient(path) for path in read]
        path = paths.locate_loading(self.results, directory)
        self._renew(path, Path(path).exists())
        return read

    def list_run_inputs(self, wildcards: Any) -> list[str]:
        """List the files that a run reads; a kept outcome does not depend on their times, another is made again.

        Where the outcome is not kept, the inputs are not ``ancient``: Snakemake would pass over a job with ``ancient``
        inputs that comes after one that runs.
        """
        directory, read = self.get_run(wildcards).directory, super().list_run_inputs(wildcards)
        if self._is_kept(directory):
            return [ancient(path) for path in read]
        if directory in self._replaced:
            snakemake_internals.force_files(self.workflow, [paths.locate_outcome(self.results, directory)])
        return read

    def list_conversion_inputs(self, wildcards: Any, image_format: str | None = None) -> list[str]:
        """List the files that a conversion reads; a file that was converted otherwise is made again."""
        dataset, file = self.get_dataset(wildcards), wildcards.file
        if image_format is None:
            converted, sources = dataset.locate_converted(self.data, file), [dataset.locate_raw(self.data, file)]
        else:
            converted = dataset.locate_images(self.data, file, image_format)
            sources = inputs.list_image_files(dataset, self.data, file)
        self._renew(converted, inputs.is_outdated(dataset, self.data, file, converted))
        return sources

    def list_scaling_inputs(self, wildcards: Any) -> list[str]:
        """List the converted files to which scalers are fitted; scalers of other files are made again."""
        files = inputs.list_scaler_files(self.get_dataset(wildcards), self.data)
        scalers = inputs.locate_scalers(self.get_dataset(wildcards), self.data)
        self._renew(
            scalers, conversions.has_other_scaling(inputs.locate_sidecar(scalers), inputs.locate_sidecars(files))
        )
        return list(files.values())

    def get_file_to_scale(self, wildcards: Any) -> dict[str, str]:
        """Return the converted file that is scaled, and its sidecar; a file that was scaled otherwise is made again."""
        dataset = self.get_dataset(wildcards)
        matrix, (numbers, _) = (
            dataset.locate_converted(self.data, wildcards.file),
            dataset.locate_scaled(self.data, wildcards.file),
        )
        sidecars = inputs.locate_sidecars(inputs.list_scaler_files(dataset, self.data))
        self._renew(numbers, conversions.has_other_scaling(inputs.locate_sidecar(numbers), sidecars))
        return {"matrix": matrix, "sidecar": inputs.locate_sidecar(matrix)}

    def list_files_to_copy(self, folder: str, path: str) -> list[str]:
        """List the file or folder that is copied to ``folder``; a copy with another sidecar is made again."""
        source, copy = (
            Path(inputs.locate_sidecar(f"{each}/{path}".removesuffix(".json"))) for each in (self.data, folder)
        )
        is_other = source.is_file() and copy.is_file() and source.read_bytes() != copy.read_bytes()
        self._renew(f"{folder}/{path}", is_other)
        return [f"{self.data}/{path}"]

    def _renew(self, file: str, is_outdated: bool) -> None:
        """Have Snakemake make an outdated file again, in the main process."""
        if self.is_main_process and is_outdated:
            snakemake_internals.force_files(self.workflow, [file])

    @functools.cached_property
    def timed(self) -> list[str]:
        """The outcomes and loading measurements of the study, which its timed jobs make."""
        return [*self.list_outcomes(self.study.runs), *self.list_measurements(self.study.loading)]

    @functools.cached_property
    def measured(self) -> list[str]:
        """The records and loading measurements of the study."""
        loading = (paths.locate_loading(self.results, each.directory) for each in self.study.loading)
        return [*self.list_records(self.study.runs), *loading]

    @property
    def updated(self) -> str:
        """The file that marks that all finished runs of the study have records of this version of the code."""
        return f"{self.folder}/logs/records_of_{record.code()}"

    @functools.cached_property
    def result_files(self) -> list[str]:
        """All results of the study: tables, figures, findings, report, and exports, which are folders."""
        return [*self._results, *(f"{self.folder}/exports/{name}" for name in self.study.exports)]

    @functools.cached_property
    def _results(self) -> list[str]:
        """All results but the exports."""
        study, folder = self.study, self.folder
        return [
            *(f"{folder}/tables/{table}.{form}" for table in study.tables for form in ("csv", "md", "tex", "html")),
            *(f"{folder}/figures/{figure}.{form}" for figure in study.figures for form in ("svg", "pdf")),
            *(f"{folder}/findings.{form}" for form in ("json", "md") if study.findings),
            # Of themselves, too: as inputs of the report they would not be made again if they were deleted.
            f"{folder}/runs.csv",
            f"{folder}/loading.csv",
            f"{folder}/{attempts.FILE}",
            f"{folder}/report.html",
        ]

    def list_runs_until(self, block: int) -> list[PlannedRun]:
        """List the runs of the blocks up to this one."""
        return [run for run in self.study.runs if run.repeat <= block]

    @functools.cached_property
    def shown_early(self) -> list[str]:
        """The files that mark that the findings after a block have been shown.

        Of blocks with runs to come, where runs start one after the other; the last block's findings are the study's.
        """
        shows_each = bool(self._config.get("show_each_block"))
        if self.timed_threads == 1 or not (self.study.findings or shows_each) or not self.is_main_process:
            return []
        paired = ((run, paths.locate_outcome(self.results, run.directory)) for run in self.study.runs)
        to_come = {run.repeat for run, path in paired if not Path(path).exists()}
        last = max((run.repeat for run in self.study.runs), default=0)
        blocks = (block for block in sorted(to_come) if (1 if shows_each else LEAST_BLOCKS) <= block < last)
        return [f"{self.folder}/logs/shown_after_block_{block}" for block in blocks]

    @functools.cached_property
    def striped(self) -> dict[str, int]:
        """{folder: stripes} of the striped copies that runs read."""
        chosen = [(run["storage"], run["lustre_stripes"]) for run in self.study.runs]
        return storage.list_striped_folders(chosen, self.machine, self.data)

    def _check_results(self) -> None:
        """Raise `StudyError` for files that were changed after they were made, or have impossible times."""
        plan.check_unchanged(self.result_files)
        if not snakemake_internals.is_dry_run(self.workflow):
            self._restore_replaced()
            renewal.restore(self.list_records(self.study.runs))
        self._are_results_stale = plan.has_replaced_inputs(self.measured, f"{self.folder}/runs.csv")
        of_users = [path for dataset in self.study.datasets.values() for path in inputs.list_user_files(dataset)]
        plan.check_times([*of_users, *paths.list_published_files(paths.ROOT), *self.measured], time.time())

    def begin(self, directories: Collection[str]) -> None:
        """Move the outcomes of runs that are about to start out of their way.

        Unless another Snakemake has trained a run since this one planned it. Stale results are removed, so that they
        are made again even if this Snakemake is stopped before it makes them.
        """
        for result in map(Path, self.result_files if self._are_results_stale else ()):
            if result.is_file():
                result.unlink()
        for directory in self._replaced.keys() & set(directories):
            folder = Path(paths.locate_run(self.results, directory))
            if not (folder / paths.OUTCOME).exists():
                continue
            with run_directory.lock_folder(folder):
                if read_seal(folder / paths.OUTCOME) != self._replaced[directory]:
                    continue
                if directory in self._again:
                    attempts.set_aside_attempts([self.study.runs_by_directory[directory]], self.results)
                else:
                    run_directory.move_to_replaced(folder)
        self.begun.update(directories)

    def get_dataset(self, wildcards: Any) -> Dataset:
        """Get the study's dataset that the wildcards name, by the name of its raw, converted or scaled files."""
        for dataset in self.study.datasets.values():
            names = (dataset.raw_id, dataset.converted_id, dataset.scaled_id)
            if dataset.benchmark == wildcards.benchmark and wildcards.dataset in names:
                return dataset
        raise WorkflowError(f"study {self.study.name} has no dataset {wildcards.dataset} of {wildcards.benchmark}")

    # Tables and figures. source_finder: `sources.select_table_sources` or `sources.select_figure_sources`

    @functools.cache  # noqa: B019  there is one plan, which lives as long as its process
    def get_sources(self, source_finder: Callable[..., sources.Sources], name: str) -> sources.Sources:
        """Get the runs and loads that the study's table or figure ``name`` is made from."""
        try:
            return source_finder(self.study, name, self.elsewhere)
        except StudyError as error:
            raise WorkflowError(str(error)) from None

    def list_result_inputs(self, source_finder: Callable[..., sources.Sources], name: str) -> dict[str, list[str]]:
        """List the records and loading measurements that a table or figure is made from, for `input`."""
        sources_used = self.get_sources(source_finder, name)
        return {
            "outcomes": self.list_outcomes(sources_used.runs),
            "loading": self.list_measurements(sources_used.loading),
            # Of other machines: those that are there, so that none is started.
            "further": [
                path for each in sources_used.further for path in self._list_ended(sources_used.further[each], each)
            ],
        }

    def list_export_inputs(self, wildcards: Any) -> list[str]:
        """List what an export is made from: the study's other results or, for an export of runs, ``runs.csv``.

        The latter is made anew whenever a run or its record changes.
        """
        exports = plan.load_exports(self.study)
        if wildcards.export not in exports.EXPORTS:
            raise WorkflowError(f"there is no export {wildcards.export}; known: {', '.join(exports.EXPORTS)}")
        return [f"{self.folder}/runs.csv"] if exports.is_run_export(wildcards.export) else self._results

    @functools.cached_property
    def paper_workloads(self) -> str:
        """`inputs.collect_paper_workloads`, as JSON; made once for all tables."""
        return to_json(inputs.collect_paper_workloads(self.study))

    @functools.cached_property
    def paper_values(self) -> str:
        """`inputs.collect_paper_values`, as JSON; made once for all tables."""
        return to_json(inputs.collect_paper_values(self.study))

    def describe_rows(self, source_finder: Callable[..., sources.Sources], name: str) -> str:
        """Describe, as JSON, what the rows of a table or figure have beside their records."""
        sources_used = self.get_sources(source_finder, name)
        return to_json(
            table_inputs.collect_other_inputs(
                sources_used.runs, sources_used.loading, self.machine, sources_used.further
            )
        )
