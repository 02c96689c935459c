"""What is planned: the files that a study makes on a machine, and what each rule needs for its wildcards."""

import functools
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.io import ancient
from snakemake.ioflags import before_update

from study import plan
from study.compare.references import LEAST_REPEATS as LEAST_BLOCKS
from study.core import paths
from study.core.errors import StudyError
from study.core.files import seal_of
from study.experiment import conversions, expansion, finished, inputs
from study.experiment.study import Dataset, LoadingMeasurement, PlannedRun
from study.launch import run_directory
from study.machines import queues, storage
from study.prediction import mechanisms
from study.records import attempts, read_tests, record, renewal, table_inputs
from study.report import sources
from study.workflow import snakemake_internals
from study.workflow.asked import Asked
from study.workflow.snakemake_internals import Workflow
from study.workflow.timed import TimedPlan, as_json


class Plan(TimedPlan):
    """A study on a machine, as the rules see it.

    Args:
        asked: the study and the machine.
        config: Snakemake's, checked.
        workflow: Snakemake's.

    Raises:
        StudyError: what cannot be planned, before anything is submitted.
    """

    def __init__(self, asked: Asked, config: Mapping[str, Any], workflow: Workflow) -> None:
        super().__init__(asked, config, workflow)
        self.elsewhere = table_inputs.elsewhere(self.study, Path(self.results))
        plan.check_results(self.study)
        self.of_findings = sources.of_findings(self.study)
        sources.check_further(self.study)
        plan.check_files(self.study)
        plan.check_storage(self.study, self.machine)
        mechanisms.declared()
        plan.check_downloads(self.study, self.data)
        plan.check_references(self.study)
        self.again: list[attempts.Again] = []
        self.begun: set[str] = set()  # directories of the runs that this Snakemake starts
        self._are_results_stale = False  # they were made of another record than the one that is there
        self._replaced: dict[str, str | None] = {}  # {directory of a finished run that is trained again: its checksum}
        if self.is_main_process:
            self.packed = self._packed(sys.argv[1:])
            expansion.note_planned_runs(self.defined(run.directory).fingerprint for run in self.study.runs)
            self.again = attempts.due(self.study.runs, self.results, self.machine)
            self._again = {run.directory for each in self.again for run in each.runs}
            self._check_made()

    def _packed(self, arguments: list[str]) -> dict[str, int]:
        """How many runs of a group share a batch job: as asked for, else as many as fill it."""
        asked = queues.parse_components(arguments)
        if asked or not queues.has_groups(self.machine):
            return asked
        return queues.advise_components(plan.timed(self.study, self.limits), self.machine, {})

    # Files

    def measurements(self, loading: Iterable[LoadingMeasurement]) -> list[str]:
        """The files of loading measurements, as `outcomes`: one that stays is no job's."""
        there = ((each.directory, paths.loading(self.results, each.directory)) for each in loading)
        return [before_update(path) if self._is_measured(directory) else path for directory, path in there]

    def records(self, runs: Iterable[PlannedRun], on: str | None = None) -> list[str]:
        """The records of runs. on: the machine, if it is another one."""
        folder = self.results if on is None else paths.beside(self.results, on)
        return [paths.record(folder, run.directory) for run in runs]

    def _ended(self, runs: Iterable[PlannedRun], on: str) -> list[str]:
        """What is there of finished runs of another machine: their records, else their outcomes."""
        folder = paths.beside(self.results, on)
        there = ((paths.record(folder, run.directory), paths.outcome(folder, run.directory)) for run in runs)
        return [record if Path(record).exists() else outcome for record, outcome in there]

    def outcomes(self, runs: Iterable[PlannedRun]) -> list[str]:
        """What runs write last, beside their records. To be called while Snakemake makes the jobs.

        One that stays is no job's: Snakemake looks for nothing that makes it, whatever times and its own metadata say.
        What is made of an outcome reads the record, too, so of another record all results are made again.
        """
        if self._are_results_stale:
            snakemake_internals.make_again(self.workflow, self.result_files)
        there = ((run, paths.outcome(self.results, run.directory)) for run in runs)
        return [before_update(path) if self._is_kept(run.directory) else path for run, path in there]

    @functools.cache  # noqa: B019  there is one plan, which lives as long as its process
    def _is_kept(self, directory: str) -> bool:
        """Whether the outcome of a run is there, and is neither another definition's nor trained again."""
        path, run = paths.outcome(self.results, directory), self.study.run_at[directory]
        if not self.is_main_process or not Path(path).exists():  # the main process has planned what is trained again
            return Path(path).exists()
        is_kept = (
            directory not in self._again
            and not snakemake_internals.is_forced(self.workflow, "train", path)
            and (self._is_of(run, Path(path).parent) or self._find_replaced(run) is not None)
        )
        if not is_kept:
            self._replaced[directory] = seal_of(path)
        return is_kept

    def _is_of(self, run: PlannedRun, folder: Path) -> bool:
        """Whether a folder has the outcome of a run as it is defined now, and trained on the data that are there."""
        has_other_data = functools.partial(finished.has_other_source, run.dataset, self.data)
        return finished.is_finished(self.defined(run.directory), folder, has_other_data)

    def _find_replaced(self, run: PlannedRun) -> Path | None:
        """The folder of an outcome of a run as it is defined now that was replaced by one of another definition."""
        kept = run_directory.list_replaced(Path(paths.run_folder(self.results, run.directory)))
        return next((folder for folder in kept if self._is_of(run, folder)), None)

    def _take_back(self) -> None:
        """Bring outcomes back that were replaced, where the study's definition is again theirs.

        Only where another definition's outcome is now: a folder that was deleted shall run again.
        """
        if not (Path(self.results) / paths.REPLACED).is_dir():
            return
        for run in self.study.runs:
            folder = Path(paths.run_folder(self.results, run.directory))
            is_of_another = (folder / paths.OUTCOME).exists() and not self._is_of(run, folder)
            if is_of_another and (kept := self._find_replaced(run)) is not None:
                run_directory.take_back(folder, kept)

    @functools.cache  # noqa: B019  there is one plan, which lives as long as its process
    def _is_measured(self, directory: str) -> bool:
        """Whether a loading measurement is there, of the data that are there; as `_is_kept`."""
        path, dataset = paths.loading(self.results, directory), self.study.measurement_at[directory].dataset
        if not self.is_main_process or not Path(path).exists():
            return Path(path).exists()
        if snakemake_internals.is_forced(self.workflow, "measure_loading", path):
            return False
        return finished.is_measured(path, functools.partial(finished.has_other_source, dataset, self.data))

    def loading_inputs(self, wildcards: Any) -> list[str]:
        """As `TimedPlan.loading_inputs`; a measurement that is there stays, or is made again, as in `run_inputs`."""
        directory, read = self.measurement_of(wildcards).directory, super().loading_inputs(wildcards)
        if self._is_measured(directory):
            return [ancient(path) for path in read]
        path = paths.loading(self.results, directory)
        self._renew(path, Path(path).exists())
        return read

    def run_inputs(self, wildcards: Any) -> list[str]:
        """As `TimedPlan.run_inputs`; an outcome that is there stays, whatever the times of these, or is made again.

        Of an outcome that does not stay, or is not there, the inputs are as ever: Snakemake does not look at a job that
        comes after one that runs, and passes over it if its inputs are ``ancient``.
        """
        directory, read = self.run_of(wildcards).directory, super().run_inputs(wildcards)
        if self._is_kept(directory):
            return [ancient(path) for path in read]
        if directory in self._replaced:
            snakemake_internals.make_again(self.workflow, [paths.outcome(self.results, directory)])
        return read

    def conversion_inputs(self, wildcards: Any, image_format: str | None = None) -> list[str]:
        """What a conversion reads; a file that was converted in another way, or of other files, is made again."""
        dataset, file = self.dataset_of(wildcards), wildcards.file
        if image_format is None:
            made, sources = dataset.converted(self.data, file), [dataset.raw(self.data, file)]
        else:
            made = dataset.images(self.data, file, image_format)
            sources = inputs.image_files(dataset, self.data, file)
        self._renew(made, inputs.is_outdated(dataset, self.data, file, made))
        return sources

    def scaling_inputs(self, wildcards: Any) -> list[str]:
        """The converted files of which scalers are fitted; scalers of other ones are made again."""
        files = inputs.scaler_files(self.dataset_of(wildcards), self.data)
        scalers = inputs.scalers(self.dataset_of(wildcards), self.data)
        self._renew(scalers, conversions.has_other_scaling(inputs.sidecar(scalers), inputs.sidecars(files)))
        return list(files.values())

    def file_to_scale(self, wildcards: Any) -> dict[str, str]:
        """The converted file that is scaled; one that was scaled as another is made again."""
        dataset = self.dataset_of(wildcards)
        matrix, (numbers, _) = dataset.converted(self.data, wildcards.file), dataset.scaled(self.data, wildcards.file)
        sidecars = inputs.sidecars(inputs.scaler_files(dataset, self.data))
        self._renew(numbers, conversions.has_other_scaling(inputs.sidecar(numbers), sidecars))
        return {"matrix": matrix, "sidecar": inputs.sidecar(matrix)}

    def to_copy(self, folder: str, path: str) -> list[str]:
        """The file or folder of the data that is copied to ``folder``; a copy with another sidecar is made again."""
        source, copy = (Path(inputs.sidecar(f"{each}/{path}".removesuffix(".json"))) for each in (self.data, folder))
        is_other = source.is_file() and copy.is_file() and source.read_bytes() != copy.read_bytes()
        self._renew(f"{folder}/{path}", is_other)
        return [f"{self.data}/{path}"]

    def _renew(self, made: str, is_outdated: bool) -> None:
        if self.is_main_process and is_outdated:
            snakemake_internals.make_again(self.workflow, [made])

    @functools.cached_property
    def timed(self) -> list[str]:
        """The outcomes and loading measurements of the study: what its jobs make."""
        return [*self.outcomes(self.study.runs), *self.measurements(self.study.loading)]

    @functools.cached_property
    def measured(self) -> list[str]:
        """The records and loading measurements of the study."""
        loading = (paths.loading(self.results, each.directory) for each in self.study.loading)
        return [*self.records(self.study.runs), *loading]

    @property
    def updated(self) -> str:
        """The file that tells that all finished runs of the study have records of this version of the code."""
        return f"{self.folder}/logs/records_of_{record.code()}"

    @functools.cached_property
    def result_files(self) -> list[str]:
        """What the study makes of them; exports are folders."""
        return [*self._results, *(f"{self.folder}/exports/{name}" for name in self.study.exports)]

    @functools.cached_property
    def _results(self) -> list[str]:
        """All but the exports."""
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

    def until(self, block: int) -> list[PlannedRun]:
        """The runs of the blocks up to this one."""
        return [run for run in self.study.runs if run.repeat <= block]

    @functools.cached_property
    def shown_early(self) -> list[str]:
        """The files that tell that what was found after a block has been shown.

        Of blocks with runs to come, where runs start one after the other; the last block's findings are the study's.
        """
        if self.timed_threads == 1 or not self.study.findings or not self.is_main_process:
            return []
        paired = ((run, paths.outcome(self.results, run.directory)) for run in self.study.runs)
        to_come = {run.repeat for run, path in paired if not Path(path).exists()}
        last = max((run.repeat for run in self.study.runs), default=0)
        shown = (block for block in sorted(to_come) if LEAST_BLOCKS <= block < last)
        return [f"{self.folder}/logs/shown_after_block_{block}" for block in shown]

    @functools.cached_property
    def striped(self) -> dict[str, int]:
        """{folder: stripes} of the striped copies that runs read."""
        chosen = [(run["storage"], run["lustre_stripes"]) for run in self.study.runs]
        return storage.list_striped_folders(chosen, self.machine, self.data)

    def _check_made(self) -> None:
        """Raise `StudyError` for files that were changed after they were made, or have impossible times."""
        plan.check_made(self.result_files)
        if not snakemake_internals.is_dry_run(self.workflow):
            self._take_back()
            renewal.restore(self.records(self.study.runs))
        self._are_results_stale = plan.check_read(self.measured, f"{self.folder}/runs.csv")
        of_users = [path for dataset in self.study.datasets.values() for path in inputs.user_files(dataset)]
        plan.check_times([*of_users, *paths.published(paths.ROOT), *self.measured], time.time())

    def begin(self, directories: Collection[str]) -> None:
        """Make place for these runs, which are about to start: outcomes that are there are kept elsewhere.

        Unless another Snakemake has trained a run since this one planned it. Stale results are removed, so that they
        are made again even if this Snakemake is stopped before it makes them.
        """
        for result in map(Path, self.result_files if self._are_results_stale else ()):
            if result.is_file():
                result.unlink()
        for directory in self._replaced.keys() & set(directories):
            folder = Path(paths.run_folder(self.results, directory))
            if not (folder / paths.OUTCOME).exists():
                continue
            with run_directory.alone_in(folder):
                if seal_of(folder / paths.OUTCOME) != self._replaced[directory]:
                    continue
                if directory in self._again:
                    attempts.put_aside([directory], self.results, self._put_aside)
                else:
                    run_directory.replace(folder)
        self.begun.update(directories)

    def dataset_of(self, wildcards: Any) -> Dataset:
        """The study's dataset that the wildcards name, by the name of its raw, converted or scaled files."""
        for dataset in self.study.datasets.values():
            names = (dataset.raw_id, dataset.converted_id, dataset.scaled_id)
            if dataset.benchmark == wildcards.benchmark and wildcards.dataset in names:
                return dataset
        raise WorkflowError(f"study {self.study.name} has no dataset {wildcards.dataset} of {wildcards.benchmark}")

    # Tables and figures. of: `sources.of_table` or `sources.of_figure`

    @functools.cache  # noqa: B019  there is one plan, which lives as long as its process
    def sources_of(self, of: Callable[..., sources.Sources], name: str) -> sources.Sources:
        """What the study's table or figure ``name`` is made from."""
        try:
            return of(self.study, name, self.elsewhere)
        except StudyError as error:
            raise WorkflowError(str(error)) from None

    def made_from(self, of: Callable[..., sources.Sources], name: str) -> dict[str, list[str]]:
        """The records and loading measurements that a table or figure is made from, for `input`."""
        found, read_test = self.sources_of(of, name), read_tests.file(self.results)
        return {
            "outcomes": self.outcomes(found.runs),
            "loading": self.measurements(found.loading),
            # Of other machines: those that are there, so that none is started.
            "further": [path for each in found.further for path in self._ended(found.further[each], each)],
            # Somebody called for it, or not: it is no run's.
            "read_test": [str(read_test)] if found.reads_storage and read_test.exists() else [],
        }

    def exported(self, wildcards: Any) -> list[str]:
        """What an export is made from: the study's other results, or of an export of runs ``runs.csv``.

        That is made anew whenever a run or its record changes.
        """
        exports = plan.load_exports(self.study)
        if wildcards.export not in exports.EXPORTS:
            raise WorkflowError(f"there is no export {wildcards.export}; known: {', '.join(exports.EXPORTS)}")
        return [f"{self.folder}/runs.csv"] if exports.is_of_runs(wildcards.export) else self._results

    @functools.cached_property
    def paper_workloads(self) -> str:
        """`inputs.paper_workloads`, as JSON; made once for all tables."""
        return as_json(inputs.paper_workloads(self.study))

    @functools.cached_property
    def paper_values(self) -> str:
        """`inputs.paper_values`, as JSON; made once for all tables."""
        return as_json(inputs.paper_values(self.study))

    def rows_of(self, of: Callable[..., sources.Sources], name: str) -> str:
        """What the rows of a table or figure have beside their records."""
        found = self.sources_of(of, name)
        return as_json(table_inputs.beside_records(found.runs, found.loading, self.machine, found.further))
