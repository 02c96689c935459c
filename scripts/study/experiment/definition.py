"""What the rules hand to the steps: a run's full definition, and the files each step needs."""

import hashlib
import json

from study import models
from study.data.loaders import CONVERTED
from study.machines import launchers

# Only what changes a run's result: a key that is not here can change without training again.
BENCHMARK_KEYS = ("files", "learning_rate", "optimizer", "loss", "shuffle", "validation_share", "model")
SEEDS_APART = 100_003  # rank r of repeat n is seeded with n x this + r: no two alike up to that many ranks
MACHINE_KEYS = ("name", "launcher", "ranks_per_node", "cores_per_rank", "gpus_per_rank", "power_sensors")
SAMPLING_HZ = 10


def run_definition(run, machine, data_dir):
    """All that defines a run, the content of its ``run.yaml``: a dict of plain values."""
    copies = run.parameters["staging"] == "local_copy"
    return {
        "parameters": run.parameters,
        "derived": {
            "epochs_per_rank": run.epochs_per_rank,
            "batch_size_per_rank": run.batch_size_per_rank,
            "nodes": launchers.nodes(run.gpus, machine),
            "seed": run.parameters["repeat"] * SEEDS_APART,
        },
        "benchmark": {"name": run.dataset.benchmark, **{key: run.spec[key] for key in BENCHMARK_KEYS}},
        "dataset": {"id": run.dataset.id, **run.dataset.definition},
        "data": {file: _paths(run, data_dir, file) for file in run.dataset.files},
        "machine": {
            **{key: machine[key] for key in MACHINE_KEYS},
            "sampling_hz": machine.get("sampling_hz", SAMPLING_HZ),
            "power_model": machine.get("power_model"),
            "environment": machine.get("environment", {}),
            "node_storage": machine.get("node_storage") if copies else None,
        },
    }


def fingerprint(definition):
    """12 hex digits that tell a run's definition from any other."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:12]


def sidecar(matrix):
    """The sidecar of a converted matrix."""
    return matrix.removesuffix(".npy") + ".json"


def _paths(run, data_dir, file):
    """What a run reads of one file. The sidecar is there for every loader: no run starts on a file not checked."""
    matrix = run.dataset.converted(data_dir, file)
    if run.parameters["loader"] == "mapped" and file in _scaled_files(run.dataset):
        numbers, codes = run.dataset.scaled(data_dir, file)
        return {"path": numbers, "codes": codes, "sidecar": sidecar(matrix)}
    path = matrix if run.parameters["loader"] in CONVERTED else run.dataset.raw(data_dir, file)
    return {"path": path, "sidecar": sidecar(matrix)}


def _scaled_files(dataset):
    return models.get(dataset.benchmark, dataset.spec).scaled_files


def scaler_files(dataset, data_dir):
    """What a dataset's scalers are fitted on: {file: its converted matrix}."""
    return {file: dataset.converted(data_dir, file) for file in _scaled_files(dataset)}


def run_inputs(run, data_dir):
    """The files that a run reads."""
    return [path for file in run.dataset.files for path in _paths(run, data_dir, file).values()]


def paper_workloads(study):
    """What tables compare with, beside the published values: each benchmark's sizes and epochs from its YAML."""
    specs = {dataset.benchmark: dataset.spec for dataset in study.datasets.values()}
    return {
        name: {key: spec.get(key) for key in ("workload", "shape", "epochs", "batch_size")}
        for name, spec in sorted(specs.items())
    }


def loading_files(dataset, data_dir):
    """What a loading measurement needs to know of each file with numbers: {file: {"raw", "npy", "sidecar", "form"}}."""
    return {
        file: {
            "raw": dataset.raw(data_dir, file),
            "npy": dataset.converted(data_dir, file),
            "sidecar": sidecar(dataset.converted(data_dir, file)),
            "form": form,
        }
        for file, form in dataset.spec["files"].items()
        if form.get("keep") != []  # a list of names is read in no time
    }


def loading_inputs(dataset, data_dir):
    """The files of a loading measurement."""
    return [files[kind] for files in loading_files(dataset, data_dir).values() for kind in ("raw", "npy", "sidecar")]


def measurement_of(study, benchmark, dataset_id):
    """The study's loading measurement on a dataset."""
    wanted = benchmark, dataset_id
    return next(entry for entry in study.loading if (entry.dataset.benchmark, entry.dataset.id) == wanted)


def expected_options(dataset, file):
    """What convert_dataset.py is told to expect of a file, as command-line options."""
    benchmark = models.get(dataset.benchmark, dataset.spec)
    shape = (None, None) if dataset.shape is None else benchmark.expected_shape(file, dataset.shape)
    return " ".join(f"--{what} {n}" for what, n in zip(("rows", "columns"), shape, strict=True) if n is not None)
