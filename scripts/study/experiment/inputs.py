"""What the rules pass to the steps: the definition of a run, and the files that each step needs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from study import workloads
from study.core.errors import StudyError
from study.data import file_sets, source_state
from study.data.images.formats import FORMATS
from study.data.images.layouts import Source
from study.data.loaders import LOADERS
from study.experiment import conversions, identity, methods
from study.experiment.definition import Derived, RunDefinition
from study.experiment.parameters import PARAMETERS
from study.experiment.study import Dataset, LoadingMeasurement, PlannedRun, Study
from study.machines import launchers, run_layout, storage
from study.workloads import command

# Only keys that change a run's result: other keys can change without training again.
BENCHMARK_KEYS = ("files", "learning_rate", "optimizer", "loss", "shuffle", "validation_share", "model")
OPTIONAL_BENCHMARK_KEYS = (
    "momentum",
    "unmatched_at_most",
)  # only if given, so that runs of other benchmarks stay the same
COMMAND_KEYS = ("kind", "command", "starts", "environment", "parameters", "metrics", "resume", "workload")
# Of a command: what its code is made of decides whether its runs are current, not whether they train again.
UNIDENTIFYING = ("folder", "code")
MACHINE_KEYS = ("name", "launcher", "ranks_per_node", "cores_per_rank", "gpus_per_rank", "power_sensors")
MACHINE_DEFAULTS: dict[str, Any] = {"sampling_hz": 10, "power_model": None, "environment": {}, "node_storage": None}
SEEDS_APART = 100_003  # rank r's order in repeat n is seeded with n x this + r: unique up to that many ranks


def define(run: PlannedRun, machine: dict[str, Any], data_dir: str) -> RunDefinition:
    """The full definition of a run on a machine.

    Its fingerprint covers the parameters that differ from their defaults and everything else that training reads: the
    benchmark's values, the dataset's definition, the machine's settings. It does not cover the locations of files.
    """
    machine = launchers.with_library(run["allreduce_library"], machine)
    settings = {name: machine.get(name, default) for name, default in MACHINE_DEFAULTS.items()}
    if run["staging"] != "local_copy":
        settings["node_storage"] = storage.list_node_folders(machine).get(run["storage"])
    on_hosts = _on_hosts(run, machine)
    derived = Derived(
        run.epochs_per_rank,
        run.batch_size_per_rank,
        len(on_hosts["hosts"]) if "hosts" in on_hosts else launchers.count_nodes(run.processes_on(machine), machine),
        run.repeat * SEEDS_APART,
    )
    content = {
        "parameters": identity.differing(run.parameters),
        "derived": vars(derived),
        "benchmark": {"name": run.dataset.benchmark, **_benchmark(run.spec)},
        "dataset": {"id": run.dataset.id, **run.dataset.definition},
        "machine": {
            **{key: machine[key] for key in MACHINE_KEYS},
            **{key: value for key, value in settings.items() if value != MACHINE_DEFAULTS[key]},
            **on_hosts,
            **_memory_mode(machine),
        },
    }
    return RunDefinition(
        fingerprint=identity.fingerprint(content),
        parameters=run.parameters,
        derived=derived,
        benchmark={**content["benchmark"], **_unidentifying(run.spec)},
        dataset=content["dataset"],
        data={file: _paths(run, _data_dir(run, machine, data_dir), file) for file in run.dataset.files},
        machine={**settings, **content["machine"]},
    )


def _benchmark(spec: dict[str, Any]) -> dict[str, Any]:
    keys = OPTIONAL_BENCHMARK_KEYS + (COMMAND_KEYS if command.is_command(spec) else ())
    optional = {key: spec[key] for key in keys if key in spec}
    return {**{key: spec[key] for key in BENCHMARK_KEYS}, **optional}


def _unidentifying(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: spec[key] for key in UNIDENTIFYING} if command.is_command(spec) else {}


def _on_hosts(run: PlannedRun, machine: dict[str, Any]) -> dict[str, Any]:
    """Settings of a machine with hosts: [host, ranks] of those in use, the most ranks on one, and how they are linked.

    A list, since rank 0 is on the first host, and JSON's keys are sorted on their way to the launch. A host that has
    parameter servers only has no ranks.

    A run stays the same when a host is added that it does not use. On a machine with a batch system only TensorFlow's
    strategies use the interface.
    """
    if not machine.get("hosts"):
        is_used = "interface" in machine and run["strategy"] != run_layout.HOROVOD
        return {"interface": machine["interface"]} if is_used else {}
    placed = run_layout.place_ranks(run.gpus, machine["hosts"])
    others: dict[str, Any] = {name: machine[name] for name in ("interface", "laboratory") if name in machine}
    ranks_on = {name: placed.get(name, 0) for name in machine["hosts"]}
    serving = set(run_layout.place_servers(run["servers"], ranks_on))
    in_use = [[name, ranks] for name, ranks in ranks_on.items() if ranks or name in serving]
    return {"hosts": in_use, "ranks_per_node": max(placed.values(), default=1), **others}


def _memory_mode(machine: dict[str, Any]) -> dict[str, Any]:
    """The machine's memory mode; nothing if its file declares none, so that runs of other machines stay the same."""
    return {name: machine[name] for name in ("memory_mode",) if name in machine}


def handed_over(run: RunDefinition) -> dict[str, Any]:
    """The definition as a rule's param: without defaults, so that a new key does not make Snakemake train again."""
    content = {**vars(run), "derived": vars(run.derived), "parameters": identity.differing(run.parameters)}
    return {name: value for name, value in content.items() if (name, value) != ("attempt", 1)}


def taken_over(content: Any) -> RunDefinition:
    """The definition from the result of `handed_over`, or from a ``run.yaml``, with defaults filled in.

    Raises `StudyError` if a parameter without a default is missing, or another key is missing or unknown.
    """
    parameters = content.get("parameters") if isinstance(content, dict) else None
    parameters = parameters if isinstance(parameters, dict) else {}
    missing = identity.missing(parameters)
    if missing:
        raise StudyError(f"parameters.{missing[0]} is missing: no run's definition")
    return RunDefinition.from_dict({**content, "parameters": identity.filled(parameters)})


def sidecar(path: str) -> str:
    """Path of the sidecar of a converted or scaled matrix, or of a folder of images."""
    return path.removesuffix(".npy").removesuffix(".npz").removesuffix(".codes") + ".json"


def _paths(run: PlannedRun, data_dir: str, file: str) -> dict[str, str]:
    """The paths that a run reads for one file. The sidecar is always one, so no run starts on an unchecked file."""
    if run["loader"] in FORMATS:
        folder = run.dataset.images(data_dir, file, run["loader"])
        return {"path": folder, "sidecar": f"{folder}.json"}
    matrix = run.dataset.converted(data_dir, file)
    reads = LOADERS[run["loader"]].reads
    if reads == "scaled" and file in _scaled_files(run.dataset):
        numbers, codes = run.dataset.scaled(data_dir, file)
        return {"path": numbers, "codes": codes, "scaled": sidecar(numbers), "sidecar": sidecar(matrix)}
    path = run.dataset.raw(data_dir, file) if reads == "raw" else matrix
    return {"path": path, "sidecar": sidecar(matrix)}


def _data_dir(run: PlannedRun, machine: dict[str, Any], data_dir: str) -> str:
    return storage.choose_data_dir(run["storage"], machine, data_dir, run["lustre_stripes"])


def _scaled_files(dataset: Dataset) -> tuple[str, ...]:
    return workloads.get(dataset.benchmark, dataset.spec).scaled_files


def user_files(dataset: Dataset) -> list[str]:
    """The user's own files and folders that are inputs of rules; none of data that are fetched or generated."""
    if not dataset.has_own_files:
        return []
    return [path for file in dataset.files for path in file_sets.listed(dataset.definition[file])]


def read_paths(dataset: Dataset, data_dir: str, file: str) -> list[str]:
    """The paths that the conversion of a file reads."""
    if not is_of_images(dataset):
        return [dataset.raw(data_dir, file)]
    return image_source(dataset, data_dir, file).read_files


def is_of_images(dataset: Dataset) -> bool:
    """Whether the samples of a dataset are images."""
    return workloads.get(dataset.benchmark, dataset.spec).kind == "images"


def is_outdated(dataset: Dataset, data_dir: str, file: str, path: str) -> bool:
    """Whether the converted file, or folder, at ``path`` is there and must be made again, whatever its time."""
    described = conversions.describe(dataset.spec, dataset.definition, file)
    return conversions.is_outdated(sidecar(path), described, read_paths(dataset, data_dir, file))


def scaler_files(dataset: Dataset, data_dir: str) -> dict[str, str]:
    """The files on which a dataset's scalers are fitted: {file: its converted matrix}."""
    return {file: dataset.converted(data_dir, file) for file in _scaled_files(dataset)}


def sidecars(files: Mapping[str, str]) -> dict[str, str]:
    """{file: path of the sidecar} of converted files."""
    return {file: sidecar(path) for file, path in files.items()}


def scalers(dataset: Dataset, data_dir: str) -> str:
    """Path of the parameters of a dataset's scalers."""
    return f"{data_dir}/scaled/{dataset.benchmark}/{dataset.scaled_id}/scalers.npz"


def run_inputs(run: PlannedRun, machine: dict[str, Any], data_dir: str) -> list[str]:
    """The files that a run reads."""
    data_dir = _data_dir(run, machine, data_dir)
    return [path for file in run.dataset.files for path in _paths(run, data_dir, file).values()]


def image_source(dataset: Dataset, data_dir: str, file: str) -> Source:
    """Where the images of a file are, before their conversion. Synthetic ones are TFRecords."""
    layout = dataset.definition.get("layout", "tfrecord")
    return Source(layout, dataset.raw(data_dir, file), dataset.definition.get("first_label"))


def image_files(dataset: Dataset, data_dir: str, file: str) -> list[str]:
    """The files, or the folder, of `image_source`; those of a pattern are listed if they are there."""
    return file_sets.listed(dataset.raw(data_dir, file))


def image_param(dataset: Dataset, data_dir: str, file: str, image_format: str) -> dict[str, Any]:
    """What convert_images.py reads, with the token of the files' state if it is not that of the first conversion."""
    described = sidecar(dataset.images(data_dir, file, image_format))
    token = source_state.token(read_paths(dataset, data_dir, file), described)
    return {**image_source(dataset, data_dir, file).as_param, **({} if token is None else {"token": token})}


def image_options(dataset: Dataset, file: str) -> dict[str, Any]:
    """What the images of a file become, for convert_images.py."""
    samples = dataset.shape[f"{dataset.spec['files'][file]['split']}_samples"] if dataset.shape else None
    return {
        "options": dataclasses.asdict(conversions.image_options(dataset.spec)),
        "samples": samples,
    }


def paper_workloads(study: Study) -> dict[str, dict[str, Any]]:
    """Values that tables compare with besides the published ones: each benchmark's sizes and epochs from its YAML."""
    specs = {dataset.benchmark: dataset.spec for dataset in study.datasets.values()}
    return {
        name: {key: spec.get(key) for key in ("workload", "shape", "epochs", "batch_size")}
        for name, spec in sorted(specs.items())
    }


def paper_values(study: Study) -> dict[str, dict[str, Any]]:
    """The papers' values of each grid key in which a run of the study differs from a paper, for comparing tables."""
    found: dict[str, dict[str, Any]] = {}
    points = [run for run in study.runs if run.repeat == 1]  # every point has a first repeat
    for name in PARAMETERS:
        of_papers = methods.of_key(name)
        given = {(run[name], run["benchmark"]) for run in points}
        if any(not value.fits(*each) for value in of_papers.values() for each in given):
            found[name] = {paper: dataclasses.asdict(value) for paper, value in of_papers.items()}
    return found


def loading_files(measurement: LoadingMeasurement, data_dir: str) -> dict[str, dict[str, Any]]:
    """Input of a loading measurement.

    For each file with numbers: {file: {"raw", "npy", "sidecar", "form", "made"}}. For each file of images: {file:
    {"folders", "form", "made", "model"}}, where folders are {loader: the converted folder}. made: what its sidecar must
    say of the conversion.
    """
    dataset = measurement.dataset
    made = {file: conversions.describe(dataset.spec, dataset.definition, file) for file in dataset.files}
    if is_of_images(dataset):
        return {
            file: {
                "folders": {loader: dataset.images(data_dir, file, loader) for loader in measurement.loaders},
                "form": form,
                "made": made[file],
                "model": {name: dataset.spec["model"][name] for name in ("channels", "classes", "resize")},
            }
            for file, form in dataset.spec["files"].items()
        }
    return {
        file: {
            "raw": dataset.raw(data_dir, file),
            "npy": dataset.converted(data_dir, file),
            "sidecar": sidecar(dataset.converted(data_dir, file)),
            "form": form,
            "made": made[file],
        }
        for file, form in dataset.spec["files"].items()
        if form.get("keep") != []  # the time to read a list of names is negligible
    }


def loading_inputs(measurement: LoadingMeasurement, data_dir: str) -> list[str]:
    """The files of a loading measurement."""
    found: list[str] = []
    for files in loading_files(measurement, data_dir).values():
        for folder in files.get("folders", {}).values():
            found += [folder, f"{folder}.json"]
        found += [files[kind] for kind in ("raw", "npy", "sidecar") if kind in files]
    return found


def expected_options(dataset: Dataset, file: str, data_dir: str | None = None) -> str:
    """The expected shape of a file, as command-line options of convert_dataset.py.

    data_dir: if given, with the token of the file's state, if it is not that of the first conversion.
    """
    benchmark = workloads.get(dataset.benchmark, dataset.spec)
    shape = (None, None) if dataset.shape is None else benchmark.expected_shape(file, dataset.shape)
    token = None
    if data_dir is not None:
        token = source_state.token([dataset.raw(data_dir, file)], sidecar(dataset.converted(data_dir, file)))
    given = zip(("rows", "columns", "token"), (*shape, token), strict=True)
    return " ".join(f"--{what} {value}" for what, value in given if value is not None)
