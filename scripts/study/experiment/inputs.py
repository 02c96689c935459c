"""Inputs of the rules and steps: the definition of a run, and the files that each step needs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from study import workloads
from study.core.errors import StudyError
from study.data import file_sets, source_state
from study.data.images import synthetic
from study.data.images.formats import FORMATS
from study.data.images.layouts import Source
from study.data.loaders import LOADERS
from study.experiment import conversions, identity, methods
from study.experiment.definition import Derived, RunDefinition
from study.experiment.parameters import PARAMETERS
from study.experiment.study import Dataset, LoadingMeasurement, PlannedRun, Study
from study.machines import run_layout, storage
from study.workloads import command

# Only keys that change a run's result: other keys can change without training again.
BENCHMARK_KEYS = ("files", "learning_rate", "optimizer", "loss", "shuffle", "validation_share", "model")
OPTIONAL_BENCHMARK_KEYS = (
    "momentum",
    "unmatched_at_most",
)  # only if given, so that runs of other benchmarks stay the same
COMMAND_KEYS = ("kind", "command", "starts", "environment", "parameters", "resume", "workload", "fresh")
# Of a command: what its code is made of decides whether its runs are current, and how its output is read what they
# show, not whether they train again.
UNIDENTIFYING = ("folder", "code", "silence_limit_s", *command.OF_READING)
MACHINE_KEYS = ("name", "launcher", "ranks_per_node", "cores_per_rank", "gpus_per_rank", "power_sensors")
MACHINE_DEFAULTS: dict[str, Any] = {"sampling_hz": 10, "power_model": None, "environment": {}, "node_storage": None}
CSV_BYTES = 9  # of a value at most: NT3's 1,120 x 60,484 values take 596 MB
SEEDS_APART = 100_003  # rank r's order in repeat n is seeded with n x this + r: unique up to that many ranks


def define_run(run: PlannedRun, machine: dict[str, Any], data_dir: str) -> RunDefinition:
    """The full definition of a run on a machine.

    Its fingerprint covers the parameters that differ from their defaults and everything else that training reads: the
    benchmark's values, the dataset's definition, the machine's settings. It does not cover the locations of files.
    """
    settings = {name: machine.get(name, default) for name, default in MACHINE_DEFAULTS.items()}
    if run["staging"] != "local_copy":
        settings["node_storage"] = storage.list_node_folders(machine).get(run["storage"])
    host_settings = _describe_hosts(run, machine)
    derived = Derived(
        run.epochs_per_rank,
        run.batch_size_per_rank,
        len(host_settings["hosts"]) if "hosts" in host_settings else run.count_nodes(machine),
        run.repeat * SEEDS_APART,
    )
    content = {
        "parameters": identity.select_differing(run.parameters),
        "derived": vars(derived),
        "benchmark": {"name": run.dataset.benchmark, **_select_benchmark_keys(run.spec)},
        "dataset": {"id": run.dataset.id, **run.dataset.definition},
        "machine": {
            **{key: machine[key] for key in MACHINE_KEYS},
            **{key: value for key, value in settings.items() if value != MACHINE_DEFAULTS[key]},
            **host_settings,
            # Only if the machine's file declares one, so that runs of other machines stay the same.
            **{key: machine[key] for key in ("memory_mode",) if key in machine},
        },
    }
    unidentifying = UNIDENTIFYING if command.is_command(run.spec) else ()
    return RunDefinition(
        fingerprint=identity.compute_fingerprint(content),
        parameters=run.parameters,
        derived=derived,
        benchmark={**content["benchmark"], **{key: run.spec[key] for key in unidentifying if key in run.spec}},
        dataset=content["dataset"],
        data={
            file: _locate_file(run, _choose_data_dir(run, machine, data_dir), file) for file in run.dataset.file_keys
        },
        machine={**settings, **content["machine"]},
    )


def _select_benchmark_keys(spec: dict[str, Any]) -> dict[str, Any]:
    """The keys of a benchmark's YAML that can change a run's result."""
    keys = OPTIONAL_BENCHMARK_KEYS + (COMMAND_KEYS if command.is_command(spec) else ())
    optional = {key: spec[key] for key in keys if key in spec}
    return {**{key: spec[key] for key in BENCHMARK_KEYS}, **optional}


def _describe_hosts(run: PlannedRun, machine: dict[str, Any]) -> dict[str, Any]:
    """The settings of a machine's hosts for a run: [host, ranks] of those in use, most ranks on one, and their link.

    ``hosts`` is a list, since rank 0 is on the first host, and JSON's keys are sorted on their way to the launch. A
    host with parameter servers only has no ranks. A run stays the same when a host is added that it does not use. On a
    machine with a batch system only TensorFlow's strategies use the interface.
    """
    if not machine.get("hosts"):
        is_used = "interface" in machine and run["strategy"] != run_layout.HOROVOD
        return {"interface": machine["interface"]} if is_used else {}
    placed = run_layout.place_ranks(run.gpus, machine["hosts"])
    links: dict[str, Any] = {name: machine[name] for name in ("interface", "laboratory") if name in machine}
    ranks_on = {name: placed.get(name, 0) for name in machine["hosts"]}
    serving = set(run_layout.place_servers(run["servers"], ranks_on))
    in_use = [[name, ranks] for name, ranks in ranks_on.items() if ranks or name in serving]
    return {"hosts": in_use, "ranks_per_node": max(placed.values(), default=1), **links}


def to_param(run: RunDefinition) -> dict[str, Any]:
    """A definition as a rule's param: without defaults, so that a new key does not make Snakemake train again."""
    content = {**vars(run), "derived": vars(run.derived), "parameters": identity.select_differing(run.parameters)}
    return {name: value for name, value in content.items() if (name, value) != ("attempt", 1)}


def from_param(content: Any) -> RunDefinition:
    """The definition from a rule's param (`to_param`) or the content of a ``run.yaml``, with defaults filled in.

    Raises `StudyError` if a parameter without a default is missing, or another key is missing or unknown.
    """
    parameters = content.get("parameters") if isinstance(content, dict) else None
    parameters = parameters if isinstance(parameters, dict) else {}
    missing = identity.list_missing_keys(parameters)
    if missing:
        raise StudyError(f"parameters.{missing[0]} is missing: no run's definition")
    return RunDefinition.from_dict({**content, "parameters": identity.fill_defaults(parameters)})


def locate_sidecar(path: str) -> str:
    """Path of the sidecar of a converted or scaled matrix, or of a folder of images."""
    return path.removesuffix(".npy").removesuffix(".npz").removesuffix(".codes") + ".json"


def _locate_file(run: PlannedRun, data_dir: str, file: str) -> dict[str, str]:
    """The paths that a run reads for one file of its dataset, always with its sidecar, by which the file is checked."""
    if run["loader"] in FORMATS:
        folder = run.dataset.locate_images(data_dir, file, run["loader"])
        return {"path": folder, "sidecar": f"{folder}.json"}
    matrix = run.dataset.locate_converted(data_dir, file)
    reads = LOADERS[run["loader"]].reads
    if reads == "scaled" and file in _list_scaled_files(run.dataset):
        numbers, codes = run.dataset.locate_scaled(data_dir, file)
        return {"path": numbers, "codes": codes, "scaled": locate_sidecar(numbers), "sidecar": locate_sidecar(matrix)}
    path = run.dataset.locate_raw(data_dir, file) if reads == "raw" else matrix
    return {"path": path, "sidecar": locate_sidecar(matrix)}


def _choose_data_dir(run: PlannedRun, machine: dict[str, Any], data_dir: str) -> str:
    """The data folder that a run reads: that of its ``storage`` and ``lustre_stripes``, else ``data_dir``."""
    return storage.choose_data_dir(run["storage"], machine, data_dir, run["lustre_stripes"])


def _list_scaled_files(dataset: Dataset) -> tuple[str, ...]:
    """The files of a dataset whose numbers are scaled."""
    return workloads.load_workload(dataset.benchmark, dataset.spec).scaled_files


def list_user_files(dataset: Dataset) -> list[str]:
    """A dataset's files and folders that are the user's own; [] if they are fetched or generated."""
    if not dataset.has_own_files:
        return []
    return [path for file in dataset.file_keys for path in file_sets.list_files(dataset.definition[file])]


def list_read_paths(dataset: Dataset, data_dir: str, file: str) -> list[str]:
    """The paths that the conversion of a file reads."""
    if not has_images(dataset):
        return [dataset.locate_raw(data_dir, file)]
    return describe_image_source(dataset, data_dir, file).read_files


def has_images(dataset: Dataset) -> bool:
    """Whether the samples of a dataset are images."""
    return workloads.load_workload(dataset.benchmark, dataset.spec).kind == "images"


def is_outdated(dataset: Dataset, data_dir: str, file: str, path: str) -> bool:
    """Whether the converted file, or folder, at ``path`` is there and must be made again, whatever its time."""
    described = conversions.describe_conversion(dataset.spec, dataset.definition, file)
    return conversions.is_outdated(locate_sidecar(path), described, list_read_paths(dataset, data_dir, file))


def list_scaler_files(dataset: Dataset, data_dir: str) -> dict[str, str]:
    """The files on which a dataset's scalers are fitted: {file: its converted matrix}."""
    return {file: dataset.locate_converted(data_dir, file) for file in _list_scaled_files(dataset)}


def locate_sidecars(files: Mapping[str, str]) -> dict[str, str]:
    """{file: path of the sidecar} of converted files."""
    return {file: locate_sidecar(path) for file, path in files.items()}


def locate_scalers(dataset: Dataset, data_dir: str) -> str:
    """Path of the parameters of a dataset's scalers."""
    return f"{data_dir}/scaled/{dataset.benchmark}/{dataset.scaled_id}/scalers.npz"


def list_run_inputs(run: PlannedRun, machine: dict[str, Any], data_dir: str) -> list[str]:
    """The files that a run reads."""
    data_dir = _choose_data_dir(run, machine, data_dir)
    return [path for file in run.dataset.file_keys for path in _locate_file(run, data_dir, file).values()]


def estimate_file_bytes(study: Study, machine: dict[str, Any], data_dir: str) -> dict[str, float]:
    """The most bytes of each file or folder of datasets that the study's runs need and the project makes, by path.

    Beside the files that runs read these are the fetched or generated ones from which they are converted. Datasets
    whose size is known only from their files are left out.
    """
    kinds = {(run.dataset, run["loader"], run["storage"], run["lustre_stripes"]): run for run in study.runs}
    readers = [
        (run.dataset, run["loader"], file, list(_locate_file(run, folder, file).values()))
        for run in kinds.values()
        if run.kind != command.KIND
        for folder in (data_dir, _choose_data_dir(run, machine, data_dir))
        for file in run.dataset.file_keys
    ]
    for measurement in study.loading:
        for file, described in describe_loading_files(measurement, data_dir).items():
            readers.append((measurement.dataset, "", file, [described["raw"], described["npy"]]))
    sizes: dict[str, float] = {}
    for dataset, loader, file, paths in readers:
        if dataset.shape is None:
            continue
        shape = workloads.load_workload(dataset.benchmark, dataset.spec).expected_shape(file, dataset.shape)
        samples, columns = (number or 0 for number in shape)
        raw, converted = (samples * each for each in _estimate_sample_bytes(dataset, loader, columns))
        if not dataset.has_own_files:
            sizes[dataset.locate_raw(data_dir, file)] = raw
        for path in paths:
            if not path.endswith(".json"):
                sizes.setdefault(path, converted)
    return sizes


def _estimate_sample_bytes(dataset: Dataset, loader: str, columns: int) -> tuple[float, float]:
    """(Bytes of a sample before its conversion, bytes of it as ``loader`` reads it), each at most."""
    if not has_images(dataset):
        return CSV_BYTES * columns, 4 * columns
    model = dataset.spec["model"]
    encoded = synthetic.compute_most_bytes(dataset.definition, model)
    return encoded, model["resize"] ** 2 * model["channels"] if FORMATS[loader].has_pixels else encoded


def describe_image_source(dataset: Dataset, data_dir: str, file: str) -> Source:
    """The layout and path of a file of images before their conversion. Synthetic ones are TFRecords."""
    layout = dataset.definition.get("layout", "tfrecord")
    return Source(layout, dataset.locate_raw(data_dir, file), dataset.definition.get("first_label"))


def list_image_files(dataset: Dataset, data_dir: str, file: str) -> list[str]:
    """The existing files of a file of images, or its folder, before the conversion."""
    return file_sets.list_files(dataset.locate_raw(data_dir, file))


def build_image_param(dataset: Dataset, data_dir: str, file: str, image_format: str) -> dict[str, Any]:
    """The rule's param for convert_images.py: the source, and the token of its state if that has changed."""
    described = locate_sidecar(dataset.locate_images(data_dir, file, image_format))
    token = source_state.choose_token(list_read_paths(dataset, data_dir, file), described)
    return {**describe_image_source(dataset, data_dir, file).as_param, **({} if token is None else {"token": token})}


def build_image_options(dataset: Dataset, file: str) -> dict[str, Any]:
    """The options of convert_images.py for a file: classes, channels and size, and its number of samples."""
    samples = dataset.shape[f"{dataset.spec['files'][file]['split']}_samples"] if dataset.shape else None
    return {
        "options": dataclasses.asdict(conversions.select_image_options(dataset.spec)),
        "samples": samples,
    }


def collect_paper_workloads(study: Study) -> dict[str, dict[str, Any]]:
    """Each benchmark's sizes, epochs and batch size from its YAML, which tables compare with published values."""
    specs = {dataset.benchmark: dataset.spec for dataset in study.datasets.values()}
    return {
        name: {key: spec.get(key) for key in ("workload", "shape", "epochs", "batch_size")}
        for name, spec in sorted(specs.items())
    }


def collect_paper_values(study: Study) -> dict[str, dict[str, Any]]:
    """The papers' values of the grid keys in which a run of the study differs from a paper, {key: {paper: value}}."""
    differing_keys: dict[str, dict[str, Any]] = {}
    points = [run for run in study.runs if run.repeat == 1]  # every point has a first repeat
    for name in PARAMETERS:
        paper_values = methods.find_paper_values(name)
        run_values = {(run[name], run["benchmark"]) for run in points}
        if any(not value.fits(*each) for value in paper_values.values() for each in run_values):
            differing_keys[name] = {paper: dataclasses.asdict(value) for paper, value in paper_values.items()}
    return differing_keys


def describe_loading_files(measurement: LoadingMeasurement, data_dir: str) -> dict[str, dict[str, Any]]:
    """The paths and form of each file that a loading measurement loads.

    {file: {"raw", "npy", "sidecar", "form", "made"}}. made: what its sidecar must say of the conversion.
    """
    dataset = measurement.dataset
    spec, definition = dataset.spec, dataset.definition
    descriptions = {file: conversions.describe_conversion(spec, definition, file) for file in dataset.file_keys}
    return {
        file: {
            "raw": dataset.locate_raw(data_dir, file),
            "npy": dataset.locate_converted(data_dir, file),
            "sidecar": locate_sidecar(dataset.locate_converted(data_dir, file)),
            "form": form,
            "made": descriptions[file],
        }
        for file, form in dataset.spec["files"].items()
        if form.get("keep") != []  # the time to read a list of names is negligible
    }


def list_loading_inputs(measurement: LoadingMeasurement, data_dir: str) -> list[str]:
    """The paths that a loading measurement reads."""
    paths: list[str] = []
    for files in describe_loading_files(measurement, data_dir).values():
        paths += [files[kind] for kind in ("raw", "npy", "sidecar")]
    return paths


def build_shape_options(dataset: Dataset, file: str, data_dir: str | None = None) -> str:
    """The options of convert_dataset.py for a file's expected shape: ``--rows 400 --columns 60``.

    data_dir: if given, with the token of the file's state, if it is not that of the first conversion.
    """
    benchmark = workloads.load_workload(dataset.benchmark, dataset.spec)
    shape = (None, None) if dataset.shape is None else benchmark.expected_shape(file, dataset.shape)
    token = None
    if data_dir is not None:
        sidecar = locate_sidecar(dataset.locate_converted(data_dir, file))
        token = source_state.choose_token([dataset.locate_raw(data_dir, file)], sidecar)
    options = zip(("rows", "columns", "token"), (*shape, token), strict=True)
    return " ".join(f"--{option} {value}" for option, value in options if value is not None)
