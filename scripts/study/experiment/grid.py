"""Expand a study's grids into runs and refuse, with file, key and reason, what cannot run.

Nothing here needs the data, Snakemake or TensorFlow: a study is checked before anything is started.
"""

import hashlib
import itertools
import math
from dataclasses import dataclass, field
from pathlib import Path

from study import models
from study.core import configuration
from study.core.errors import StudyError
from study.data.samples import samples_per_rank

# What names a run's directory, a level a line: what is trained and how far, on how many GPUs, and how that is done;
# icpp2019, sections 2.3.1 and 4.2, for what they mean. One level would be longer than a file's name may be.
LEVELS = (
    ("benchmark",),
    ("dataset",),
    ("scaling", "epochs", "gpus", "batch_size", "batch_scaling", "learning_rate_scaling", "warmup_epochs"),
    (
        "loader",
        "staging",
        "input_pipeline",
        "sharding",
        "extra_loads",
        "checkpoint_epochs",
        "trace",
        "profile",
        "repeat",
    ),
)
PARAMETERS = tuple(itertools.chain.from_iterable(LEVELS))
AXES = (
    "gpus",
    "batch_size",
    "loader",
    "batch_scaling",
    "staging",
    "input_pipeline",
)  # keys that may have several values
BROADCASTS = ("node_broadcast", "job_broadcast")
MOST_RUNS = 20_000
DEFAULTS = {
    "batch_scaling": "none",
    "learning_rate_scaling": "linear",
    "warmup_epochs": 0,
    "staging": "none",
    "input_pipeline": "tf_data",
    "sharding": "none",
    "extra_loads": 0,
    "checkpoint_epochs": 0,
    "trace": False,
    "profile": False,
    "repeats": 1,
}


@dataclass(frozen=True)
class Dataset:
    """One dataset of a study: where its files come from and what its converted files are called."""

    key: str  # its name in the study
    id: str  # its name among all studies' files
    benchmark: str
    definition: dict = field(hash=False)
    spec: dict = field(hash=False)  # the benchmark's YAML
    shape: dict | None = field(hash=False)  # train_samples, test_samples, features; None where only the files tell
    train_samples: int | None  # samples of an epoch, without the validation set; None where only the files tell

    @property
    def files(self):
        """The names of its files, as the benchmark's YAML has them."""
        return tuple(self.spec["files"])

    def raw(self, data_dir, file):
        """Path of one file; for a ``path`` source the user's own."""
        if self.definition["source"] == "path":
            return self.definition[file]
        return f"{data_dir}/raw/{self.benchmark}/{self.id}/{self.spec['files'][file]['name']}"

    def file_named(self, name):
        """The key of the file with the name that it has on the server."""
        return next(file for file, form in self.spec["files"].items() if form["name"] == name)

    def converted(self, data_dir, file):
        """Path of the converted matrix of ``file`` (``.npy``); its sidecar is the same with ``.json``."""
        return f"{data_dir}/converted/{self.benchmark}/{self.id}/{file}.npy"

    def scaled(self, data_dir, file):
        """Paths (``.npy``) of the scaled numbers of ``file`` and of its columns of categories."""
        stem = f"{data_dir}/scaled/{self.benchmark}/{self.id}/{file}"
        return f"{stem}.npy", f"{stem}.codes.npy"


@dataclass(frozen=True)
class Run:
    """One point of a grid, repeated once: what defines it, without the machine."""

    parameters: dict = field(hash=False)
    dataset: Dataset
    may_fail: str | None = None  # why this point is expected to fail, by its grid

    @property
    def spec(self):
        """The benchmark's YAML."""
        return self.dataset.spec

    @property
    def gpus(self):
        """Number of ranks, one a GPU (on machines without GPUs one a node or a core)."""
        return self.parameters["gpus"]

    @property
    def epochs_per_rank(self):
        """Epochs that each rank trains: E / N under strong scaling, E under weak and batch (icpp2019, 2.3.1)."""
        epochs = self.parameters["epochs"]
        return epochs // self.gpus if self.parameters["scaling"] == "strong" else epochs

    @property
    def batch_size_per_rank(self):
        """Batch size of one rank after batch scaling (icpp2019, 2.3.1)."""
        return scaled_batch_size(self.parameters["batch_size"], self.gpus, self.parameters["batch_scaling"])

    @property
    def samples_per_rank(self):
        """Samples that a rank sees in an epoch; None where only the files tell."""
        samples = self.dataset.train_samples
        if samples is None or self.parameters["sharding"] == "none":
            return samples
        return samples_per_rank(samples, self.gpus)

    @property
    def directory(self):
        """The run's directory below the machine's ``runs/``."""
        return run_directory(self.parameters)

    @property
    def key(self):
        """The run's parameters as a hashable value: equal for equal runs, whichever study asks."""
        return tuple(self.parameters[name] for name in PARAMETERS)


def run_directory(values):
    """A run's directory below a machine's ``runs/``: each parameter as ``name~value``, in a fixed order.

    values: by parameter; give ``{name}`` placeholders to get the pattern.
    """
    return "/".join(",".join(f"{name}~{_in_path(values[name])}" for name in level) for level in LEVELS)


def _in_path(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class LoadingMeasurement:
    """Time the loaders on one dataset's files, alternating, each load in a process of its own."""

    dataset: Dataset
    loaders: tuple
    page_caches: tuple  # warm, cold
    repeats: int


@dataclass(frozen=True)
class Study:
    """A study's YAML, expanded."""

    name: str
    description: str
    datasets: dict = field(hash=False)  # (benchmark, id) -> Dataset, only those that something uses
    runs: tuple = ()
    loading: tuple = ()
    tables: tuple = ()
    figures: tuple = ()


def scaled_batch_size(batch_size, gpus, scaling):
    """Batch size of a rank for N GPUs: B, B x N, int(B x N^1/2) or int(B x N^1/3) (icpp2019, 2.3.1).

    The roots are taken in integers, so that exact powers are not lost to rounding.
    """
    power = {"none": 0, "linear": 1, "square_root": 2, "cubic_root": 3}[scaling]
    if power == 0:
        return batch_size
    return _integer_root(batch_size**power * gpus, power)


def _integer_root(value, power):
    root = round(value ** (1 / power))
    while root**power > value:
        root -= 1
    while (root + 1) ** power <= value:
        root += 1
    return root


def load_study(name):
    """Read and expand ``config/studies/<name>.yaml``; raises `StudyError` for anything that cannot run."""
    return expand(name, configuration.load_named("studies", name), f"config/studies/{name}.yaml")


def expand(name, content, where):
    """Expand a study that the schema has accepted. where: the file that messages name."""
    datasets = {key: _dataset(key, value, where) for key, value in content["datasets"].items()}
    runs = {}
    for index, grid in enumerate(content["runs"]):
        for run in _grid_runs(grid, datasets, f"{where}: runs[{index}]"):
            if run.key not in runs or run.may_fail:
                runs[run.key] = run
    loading = tuple(
        LoadingMeasurement(
            _dataset_of(entry, datasets, f"{where}: loading[{index}]"),
            tuple(_several(entry["loader"])),
            tuple(_several(entry.get("page_cache", "warm"))),
            entry["repeats"],
        )
        for index, entry in enumerate(content.get("loading", []))
    )
    for index, entry in enumerate(loading):
        if _identity(entry.dataset) in [_identity(earlier.dataset) for earlier in loading[:index]]:
            raise StudyError(
                f"{where}: loading[{index}].dataset: '{entry.dataset.key}' is measured by another entry already"
            )
    used = [run.dataset for run in runs.values()] + [measurement.dataset for measurement in loading]
    if not used:
        raise StudyError(f"{where}: runs: there is nothing to run; give at least one grid or loading measurement")
    return Study(
        name,
        content["description"],
        {_identity(d): d for d in used},
        tuple(runs.values()),
        loading,
        tuple(content["tables"]),
        tuple(content.get("figures", ())),
    )


def _identity(dataset):
    """What makes two datasets one, whatever a study calls them."""
    return dataset.benchmark, dataset.id


def _dataset(key, definition, where):
    place = f"{where}: datasets.{key}"
    name = definition.get("benchmark", key)
    try:
        spec = configuration.load_named("benchmarks", name)
    except StudyError as error:
        raise StudyError(f"{place}.benchmark: {error}") from None
    definition = {name: value for name, value in definition.items() if name != "benchmark"}
    benchmark = models.get(name, spec)
    shape = samples = None
    if definition["source"] == "url":
        shape, samples = spec.get("shape"), spec["workload"]["train_samples"]
    elif definition["source"] == "path":
        _check_files(definition, spec, name, place)
    else:
        shape = {name: definition[name] for name in ("train_samples", "test_samples", "features")}
        samples = shape["train_samples"] - benchmark.validation_samples(shape["train_samples"])
    if samples is not None and spec["validation_share"] and samples == (shape or {}).get("train_samples"):
        raise StudyError(
            f"{place}.train_samples: {samples} leave no validation sample ({spec['validation_share']:.0%})"
        )
    try:
        least = benchmark.minimum_features
    except (KeyError, TypeError) as error:
        raise StudyError(
            f"config/benchmarks/{name}.yaml: model: not as the benchmark's code needs it: {error}"
        ) from None
    if shape is not None and shape["features"] < least:
        raise StudyError(f"{place}.features: {shape['features']} is too few: {name}'s layers need {least}")
    return Dataset(key, _dataset_id(key, definition, spec), name, definition, spec, shape, samples)


def _check_files(definition, spec, benchmark, place):
    given, wanted = set(definition) - {"source"}, set(spec["files"])
    for file in sorted(given - wanted):
        raise StudyError(f"{place}.{file}: {benchmark} has no such file; its files: {', '.join(spec['files'])}")
    for file in sorted(wanted - given):
        raise StudyError(f"{place}: the key '{file}' is missing; {benchmark}'s files: {', '.join(spec['files'])}")


def _dataset_id(key, definition, spec):
    """A name that tells datasets apart across studies, since studies share runs and converted files."""
    if definition["source"] == "url":
        return "candle"
    if definition["source"] == "path":
        files = "\n".join(str(Path(definition[file])) for file in spec["files"])
        return f"{key}-{hashlib.sha256(files.encode()).hexdigest()[:6]}"
    return "synthetic-{train_samples}-{test_samples}x{features}-seed{seed}".format(**definition)


def _dataset_of(entry, datasets, place):
    name = entry.get("dataset", entry["benchmark"])
    if name not in datasets:
        raise StudyError(f"{place}.dataset: there is no dataset '{name}'; datasets has: {', '.join(datasets)}")
    dataset = datasets[name]
    if dataset.benchmark != entry["benchmark"]:
        raise StudyError(
            f"{place}.benchmark: '{entry['benchmark']}' cannot use dataset '{name}', which is {dataset.benchmark}'s"
        )
    return dataset


def _grid_runs(grid, datasets, place):
    grid = {**DEFAULTS, **grid}
    dataset = _dataset_of(grid, datasets, place)
    spec = dataset.spec
    epochs = grid.get("epochs", spec["epochs"].get(grid["scaling"]))
    if epochs is None:
        raise StudyError(
            f"{place}: the key 'epochs' is missing; {dataset.benchmark} has no default under {grid['scaling']} scaling"
        )
    axes = {name: _several(grid.get(name, spec.get(name))) for name in AXES}
    number = math.prod(map(len, axes.values())) * grid["repeats"]
    if number > MOST_RUNS:
        raise StudyError(f"{place}: the grid has {number} runs, {MOST_RUNS} are the most that a grid may have")
    for point in itertools.product(*axes.values()):
        for repeat in range(1, grid["repeats"] + 1):
            values = {**grid, "dataset": dataset.id, "epochs": epochs, **dict(zip(axes, point, strict=True))}
            values["repeat"] = repeat
            run = Run({name: values[name] for name in PARAMETERS}, dataset, grid.get("may_fail"))
            _refuse_impossible(run, place)
            yield run


def _refuse_impossible(run, place):
    """Raise for a point that could not run, or not mean what the paper means."""
    epochs, gpus, minimum = run.parameters["epochs"], run.gpus, run.spec["epochs"]["minimum_per_rank"]
    if run.parameters["scaling"] == "strong" and epochs % gpus:
        near = sorted(_divisors(epochs), key=lambda n: abs(math.log(n / gpus)))[:2]
        raise StudyError(
            f"{place}.gpus: {gpus}: {epochs} epochs cannot be divided evenly among {gpus} ranks "
            f"(strong scaling); nearest that can: {' or '.join(map(str, sorted(near)))}"
        )
    if run.epochs_per_rank < minimum:
        raise StudyError(
            f"{place}.gpus: {gpus}: {run.epochs_per_rank} epochs a rank; "
            f"{run.parameters['benchmark']} needs at least {minimum}"
        )
    _refuse_impossible_batch(run, place)
    warmup = run.parameters["warmup_epochs"]
    if warmup > run.epochs_per_rank:
        raise StudyError(f"{place}.warmup_epochs: {warmup} is more than the {run.epochs_per_rank} epochs of a rank")
    if warmup and run.parameters["learning_rate_scaling"] == "none":
        raise StudyError(f"{place}.warmup_epochs: there is nothing to warm up to with learning_rate_scaling: none")
    _refuse_impossible_input(run, place)
    _refuse_impossible_observation(run, place)


def _divisors(number):
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return {*small, *(number // n for n in small)}


def _refuse_impossible_observation(run, place):
    """A run is timed, traced or profiled: what slows it must not be in the others' numbers."""
    if run.parameters["trace"] and run.parameters["profile"]:
        raise StudyError(f"{place}.profile: a run cannot be traced and profiled at once; give two grids")
    if run.parameters["extra_loads"] and not run.parameters["trace"]:
        raise StudyError(
            f"{place}.extra_loads: makes loading uneven to look at it in the timeline: it needs trace: true"
        )
    if run.parameters["checkpoint_epochs"] and (run.parameters["trace"] or run.parameters["profile"]):
        raise StudyError(f"{place}.checkpoint_epochs: a traced or profiled run has no checkpoints; give two grids")
    if run.parameters["trace"] and run.gpus == 1:
        raise StudyError(f"{place}.gpus: 1: one rank has no communication to trace")


def _refuse_impossible_input(run, place):
    """A way from the files to the model that cannot be gone."""
    staging, pipeline = run.parameters["staging"], run.parameters["input_pipeline"]
    if staging != "none" and run.parameters["extra_loads"]:
        raise StudyError(f"{place}.extra_loads: a rank that loads more often needs staging: none")
    if staging in BROADCASTS and run.parameters["trace"]:
        raise StudyError(
            f"{place}.trace: the timeline of a run with staging: {staging} would take the data's broadcast for that of "
            "the weights; trace with staging: none or local_copy"
        )
    if pipeline != "keras_arrays":
        return
    if models.get(run.dataset.benchmark, run.spec).samples_are_joined:
        raise StudyError(
            f"{place}.input_pipeline: {run.dataset.benchmark}'s samples are joined a batch at a time; there is no "
            "array to hand to Keras; use tf_data"
        )
    if run.parameters["checkpoint_epochs"]:
        raise StudyError(
            f"{place}.checkpoint_epochs: a run could not go on as it would have: with input_pipeline: keras_arrays the "
            "order of the samples is Keras's own; use tf_data"
        )


def _refuse_impossible_batch(run, place):
    if run.parameters["scaling"] == "batch" and run.parameters["batch_scaling"] == "none":
        raise StudyError(
            f"{place}.batch_scaling: scaling: batch needs one of linear, square_root, cubic_root; "
            "batches that do not grow with the ranks are scaling: weak"
        )
    samples = run.samples_per_rank
    if samples is not None and run.batch_size_per_rank > samples:
        share = "" if run.parameters["sharding"] == "none" else " of a rank's part (sharding: by_rank)"
        raise StudyError(
            f"{place}.batch_size: {run.batch_size_per_rank} on {run.gpus} ranks "
            f"is larger than the {samples} training samples{share}"
        )


def benchmarks_of(study):
    """The names of the benchmarks that a study trains, in the order of its runs."""
    return list(dict.fromkeys(run.dataset.benchmark for run in study.runs))


def _several(value):
    return value if isinstance(value, list) else [value]
