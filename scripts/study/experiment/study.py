"""An expanded study: its datasets, planned runs and loading measurements."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study import workloads
from study.core import paths
from study.core.errors import StudyError
from study.data import text_table
from study.data.loaders import LOADERS
from study.data.samples import Can, count_samples_per_rank
from study.data.tabular import Form
from study.experiment import conversions, identity
from study.experiment.target import Target
from study.machines import launchers
from study.workloads import command


@dataclass(frozen=True)
class Dataset:
    """One dataset of a study: the source of its files and the names of its converted files.

    Args:
        key: its name in the study.
        id: its name among the files of all studies.
        benchmark: the benchmark that the files belong to.
        definition: the study's definition of it, as far as it decides the content of the files.
        origin: the rest of it, of a ``url`` dataset: ``server``, and the ``checksums`` that its files must have.
        spec: the benchmark's YAML.
        shape: train_samples, test_samples, features; None if known only from the files.
        train_samples: samples per epoch, without the validation set; None if known only from the files.
        target: the quality to reach: the study's, else the benchmark's; None if neither declares one.
    """

    key: str
    id: str
    benchmark: str
    definition: dict[str, Any] = field(hash=False)
    spec: dict[str, Any] = field(hash=False)
    shape: dict[str, int] | None = field(hash=False)
    train_samples: int | None
    target: Target | None = None
    origin: dict[str, Any] = field(hash=False, default_factory=dict)

    @property
    def generator_version(self) -> int:
        """The version of the code that makes its files; 1 for files from elsewhere."""
        return workloads.load_workload(self.benchmark, self.spec).generator_version if self.is_generated else 1

    @property
    def is_generated(self) -> bool:
        """Whether the files are synthetic."""
        return self.definition["source"] in ("synthetic", "synthetic_images")

    @property
    def file_keys(self) -> tuple[str, ...]:
        """The keys of its files, such as ``train``, under ``files`` in the benchmark's YAML."""
        return tuple(self.spec["files"])

    @property
    def has_own_files(self) -> bool:
        """Whether its files are the user's own, which are neither fetched nor generated."""
        return self.definition["source"] in ("path", "image_files")

    def locate_raw(self, data_dir: str, file: str) -> str:
        """Path of a file before its conversion; for the user's own files, theirs."""
        if self.has_own_files:
            return self.definition[file]
        return f"{data_dir}/raw/{self.benchmark}/{self.raw_id}/{self.spec['files'][file]['name']}"

    @functools.cached_property
    def raw_id(self) -> str:
        """The name of its raw files: `id`, and of generated ones a digest of the form in which they are written."""
        return f"{self.id}-{identity.compute_fingerprint(self.spec['files'])}" if self.is_generated else self.id

    def count_columns(self, file: str) -> int | None:
        """Number of columns of a table; None if it is known only from a file that is not there yet."""
        if self.shape is not None:
            return workloads.load_workload(self.benchmark, self.spec).expected_shape(file, self.shape)[1]
        if self.definition["source"] != "path" or not Path(self.definition[file]).is_file():
            return None
        try:
            return len(text_table.read_column_names(self.definition[file], Form.from_spec(self.spec["files"][file])))
        except (StudyError, OSError):
            return None  # the conversion says what is wrong with the file

    def explain_too_wide(self, loader: str) -> str | None:
        """Which file is too wide for a loader, and why; None if the loader takes all, or the width is not known."""
        for file in self.file_keys if loader in LOADERS and LOADERS[loader].most_columns is not None else ():
            reason = LOADERS[loader].explain_width(self.count_columns(file) or 0)
            if reason:
                return f"file {file} of dataset '{self.key}' {reason}"
        return None

    def locate_checksum(self, data_dir: str, file: str) -> str:
        """Path of the SHA-256 of the first download of ``file``."""
        return f"{data_dir}/checksums/{self.benchmark}/{self.raw_id}/{self.spec['files'][file]['name']}.sha256"

    def find_file(self, name: str) -> str:
        """The key of the file with this name on the server."""
        return next(file for file, form in self.spec["files"].items() if form["name"] == name)

    @functools.cached_property
    def converted_id(self) -> str:
        """The name of its converted files: `id`, and a digest of how they are converted."""
        own_paths = {
            file: str(paths.make_absolute(self.locate_raw("", file))) for file in self.file_keys if self.has_own_files
        }
        return f"{self.id}-{conversions.digest_conversion(self.spec, self.definition, own_paths)}"

    @functools.cached_property
    def scaled_id(self) -> str:
        """The name of its scaled files: `converted_id`, and a digest of how they are scaled."""
        return f"{self.id}-{conversions.digest_scaling(self.converted_id)}"

    def locate_converted(self, data_dir: str, file: str) -> str:
        """Path of the converted matrix of ``file`` (``.npy``); its sidecar is the same with ``.json``."""
        return f"{data_dir}/converted/{self.benchmark}/{self.converted_id}/{file}.npy"

    def locate_images(self, data_dir: str, file: str, loader: str) -> str:
        """Path of the folder with the images of ``file`` in the format of a loader; its sidecar is the same + .json."""
        return f"{data_dir}/converted/{self.benchmark}/{self.converted_id}/{file}.{loader}"

    def locate_scaled(self, data_dir: str, file: str) -> tuple[str, str]:
        """Paths (``.npy``) of the scaled numbers of ``file`` and of its code columns."""
        stem = f"{data_dir}/scaled/{self.benchmark}/{self.scaled_id}/{file}"
        return f"{stem}.npy", f"{stem}.codes.npy"


@dataclass(frozen=True)
class Arm:
    """A run's part in a comparison that a grid's ``tuning`` declares; the runs of a block are compared.

    Args:
        name: of the arm in its grid; `BASELINE` for the baseline itself.
        baseline: `PlannedRun.point` of the baseline.
        switches: {grid key: (the arm's value, the baseline's)}; empty for the baseline.
    """

    name: str
    baseline: str
    switches: dict[str, tuple[Any, Any]]


BASELINE = "baseline"


@dataclass(frozen=True)
class PlannedRun:
    """One repeat of one point of a grid: the definition of a run without the machine.

    ``run["gpus"]`` is the value of a parameter. may_fail: the grid's reason why this point is expected to fail. arms:
    its parts in comparisons; a run may be the baseline of one and an arm of others. walltime_minutes: of its batch job,
    if the grid says it.
    """

    parameters: dict[str, Any] = field(hash=False)
    dataset: Dataset
    may_fail: str | None = None
    arms: tuple[Arm, ...] = field(default=(), hash=False)
    walltime_minutes: int | None = None

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    @property
    def spec(self) -> dict[str, Any]:
        """The benchmark's YAML."""
        return self.dataset.spec

    @property
    def gpus(self) -> int:
        """Number of ranks, one per GPU (on machines without GPUs one per node or core)."""
        return self["gpus"]

    def count_processes(self, machine: dict[str, Any]) -> int:
        """Number of processes that a machine's launcher starts for the run, each in a rank's place."""
        return launchers.count_started(self["strategy"], self.gpus, self["servers"], machine)

    def count_nodes(self, machine: dict[str, Any]) -> int:
        """Number of nodes that the run has on a machine."""
        return launchers.count_nodes(self.count_processes(machine), machine)

    @property
    def trained_ranks(self) -> int:
        """Number of ranks that train one model: of a member in an ensemble, and with those that each rank emulates."""
        return self.gpus // self["ensemble"] * self["emulated_ranks"]

    @property
    def repeat(self) -> int:
        """The number of the repeat, from 1; also its block, see `study.experiment.run_order`."""
        return self["repeat"]

    def with_repeat(self, repeat: int) -> PlannedRun:
        """Another repeat of the same point; no other key depends on the number."""
        return dataclasses.replace(self, parameters={**self.parameters, "repeat": repeat})

    @property
    def epochs_per_rank(self) -> int:
        """Epochs that each rank trains: E / N under strong scaling, E under weak and batch (ICPP 2019, 2.3.1).

        A program may divide something else than its epochs.
        """
        return self["epochs"] // self.trained_ranks if self.divides_epochs else self["epochs"]

    @property
    def divides_epochs(self) -> bool:
        """Whether its epochs are divided among the ranks."""
        return self["scaling"] == "strong" and self["work"] == command.EPOCHS

    @property
    def batch_size_per_rank(self) -> int:
        """Batch size of one rank after batch scaling (ICPP 2019, 2.3.1)."""
        return scale_batch_size(self["batch_size"], self.trained_ranks, self["batch_scaling"])

    @property
    def samples_per_rank(self) -> int | None:
        """Samples that a rank trains on in an epoch; None if known only from the files."""
        samples = self.dataset.train_samples
        if self.kind == command.KIND and samples is not None:
            return command.count_rank_samples(samples, self["scaling"], self["work"], self.gpus)
        if samples is None or self["sharding"] == "none":
            return samples
        return count_samples_per_rank(samples, self.trained_ranks)

    @property
    def steps(self) -> int | None:
        """Training steps of a rank; None if known only from the files."""
        samples = self.samples_per_rank
        return None if samples is None else self.epochs_per_rank * -(-samples // self.batch_size_per_rank)

    @property
    def kind(self) -> str:
        """What the benchmark's samples are: tables or images."""
        return workloads.load_workload(self.dataset.benchmark, self.spec).kind

    @property
    def source_can(self) -> Can:
        """The capabilities of the benchmark's sample source."""
        return workloads.load_workload(self.dataset.benchmark, self.spec).can

    @functools.cached_property
    def directory(self) -> str:
        """The run's directory below the machine's ``runs/``: benchmark, dataset, point."""
        return f"{self.dataset.benchmark}/{self.dataset.id}/{identity.name_point(self.parameters, self.spec)}"

    @functools.cached_property
    def point(self) -> str:
        """The directory of the first repeat: the name of the point whose repeat this is."""
        name = identity.name_point({**self.parameters, "repeat": 1}, self.spec)
        return f"{self.dataset.benchmark}/{self.dataset.id}/{name}"

    @property
    def key(self) -> tuple[Any, ...]:
        """The run's parameters as a hashable value: equal for equal runs of any study."""
        return tuple(self.parameters.values())


@dataclass(frozen=True)
class LoadingMeasurement:
    """Time the loaders on one dataset's files, interleaved, one process per load."""

    dataset: Dataset
    loaders: tuple[str, ...]
    page_caches: tuple[str, ...]  # warm, cold
    repeats: int

    @property
    def directory(self) -> str:
        """Its directory below the machine's ``loading/``; studies share it only if their measurements are equal."""
        caches, loaders = "-".join(self.page_caches), "-".join(self.loaders)
        name = identity.shorten_name(identity.SEPARATOR.join([caches, f"repeats~{self.repeats}", f"loaders~{loaders}"]))
        return f"{self.dataset.benchmark}/{self.dataset.id}/{name}"


@dataclass(frozen=True)
class Reference:
    """A quantity whose accepted value on a machine is compared with new measurements.

    Args:
        quantity: a column of the tidy table of runs or loads.
        of: ``runs`` or ``loads``.
        point: the keys by which the points are selected, {name: value}.
        low, high: the largest relative fall and rise that is allowed, such as -0.1 and 0.05; None for no limit.
    """

    quantity: str
    of: str
    point: dict[str, Any] = field(hash=False)
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Further:
    """The finished runs of a study on a machine, by their names."""

    machine: str
    study: str


@dataclass(frozen=True)
class Study:
    """A study's YAML, expanded.

    datasets: (benchmark, id) to `Dataset`, only those in use. further: whose finished runs its tables may show too.
    parts: {what grids are of: their runs}, of grids that say it; a run may be in several. screening_blocks: how many
    blocks pick an arm, which the later ones confirm; None for half of them. exports: names of `study.contrib.exports`.
    """

    name: str
    description: str
    datasets: dict[tuple[str, str], Dataset] = field(hash=False)
    runs: tuple[PlannedRun, ...] = ()
    loading: tuple[LoadingMeasurement, ...] = ()
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    further: tuple[Further, ...] = ()
    findings: tuple[str, ...] = ()
    parts: dict[str, tuple[PlannedRun, ...]] = field(hash=False, default_factory=dict)
    screening_blocks: int | None = None
    exports: tuple[str, ...] = ()

    def select_elsewhere(self, machine: str) -> list[Further]:
        """The further results of other machines than the one on which the study itself runs."""
        return [each for each in self.further if each.machine != machine]

    @functools.cached_property
    def runs_by_directory(self) -> dict[str, PlannedRun]:
        """Its runs by directory."""
        return {run.directory: run for run in self.runs}

    @functools.cached_property
    def measurements_by_directory(self) -> dict[str, LoadingMeasurement]:
        """Its loading measurements by directory."""
        return {measurement.directory: measurement for measurement in self.loading}


def compute_work_growth(scaling: str, sharding: str, ranks: Any) -> Any:
    """The growth of a whole job's work when its ranks grow ``ranks`` times; ranks: a number or an array.

    Under weak scaling each rank trains all epochs, under strong scaling its share of them. With sharding by_rank each
    epoch of a rank has its share of the samples. Batch scaling solves one problem with larger batches (ICPP 2019,
    2.3.1). Of a program the same holds, whatever it divides: under strong scaling the work of the job is fixed.
    """
    if scaling == "batch":
        return ranks**0
    return ranks ** float((scaling == "weak") - (sharding == "by_rank"))


def scale_batch_size(batch_size: int, gpus: int, scaling: str) -> int:
    """Batch size of a rank for N ranks: B, B x N, int(B x N^1/2) or int(B x N^1/3) (ICPP 2019, 2.3.1).

    The roots are computed in integers, so that exact powers are not lost to rounding.
    """
    power = {"none": 0, "linear": 1, "square_root": 2, "cubic_root": 3}[scaling]
    if power == 0:
        return batch_size
    return _compute_integer_root(batch_size**power * gpus, power)


def _compute_integer_root(value: int, power: int) -> int:
    """The largest integer whose power is at most ``value``."""
    root = round(value ** (1 / power))
    while root**power > value:
        root -= 1
    while (root + 1) ** power <= value:
        root += 1
    return root
