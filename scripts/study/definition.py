"""What the rules hand to the steps: a run's full definition, and the files each step needs."""

import hashlib
import json

from study import launcher
from study.grid import SPLITS
from study.loaders import CONVERTED

# Only what changes a run's result: a key that is not here can change without training again.
BENCHMARK_KEYS = ("label_column", "classes", "learning_rate", "optimizer", "loss", "model")
SEEDS_APART = 100_003  # rank r of repeat n is seeded with n x this + r: no two alike up to that many ranks
MACHINE_KEYS = ("name", "launcher", "ranks_per_node", "cores_per_rank", "gpus_per_rank")


def run_definition(run, machine, data_dir):
    """All that defines a run, the content of its ``run.yaml``: a dict of plain values."""
    converted = run.parameters["loader"] in CONVERTED
    matrices = {split: run.dataset.converted(data_dir, split) for split in SPLITS}
    files = matrices if converted else {split: run.dataset.raw(data_dir, split) for split in SPLITS}
    return {
        "parameters": run.parameters,
        "derived": {
            "epochs_per_rank": run.epochs_per_rank,
            "batch_size_per_rank": run.batch_size_per_rank,
            "nodes": launcher.nodes(run.gpus, machine),
            "seed": run.parameters["repeat"] * SEEDS_APART,
        },
        "benchmark": {"name": run.dataset.benchmark, **{key: run.spec[key] for key in BENCHMARK_KEYS}},
        "dataset": {"id": run.dataset.id, **run.dataset.definition},
        "data": {**files, **{f"{split}_sidecar": sidecar(matrices[split]) for split in SPLITS}},
        "machine": {key: machine[key] for key in MACHINE_KEYS},
    }


def fingerprint(definition):
    """12 hex digits that tell a run's definition from any other."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:12]


def sidecar(matrix):
    """The sidecar of a converted matrix."""
    return matrix.removesuffix(".npy") + ".json"


def run_inputs(run, data_dir):
    """Files a run reads. The sidecars are among them for every loader: no run starts on a file not checked."""
    matrices = [run.dataset.converted(data_dir, split) for split in SPLITS]
    converted = run.parameters["loader"] in CONVERTED
    files = matrices if converted else [run.dataset.raw(data_dir, split) for split in SPLITS]
    return [*files, *map(sidecar, matrices)]


def loading_files(dataset, data_dir):
    """{split: {"csv", "npy", "sidecar"}}, the files of a loading measurement."""
    return {
        split: {
            "csv": dataset.raw(data_dir, split),
            "npy": dataset.converted(data_dir, split),
            "sidecar": sidecar(dataset.converted(data_dir, split)),
        }
        for split in SPLITS
    }


def loading_inputs(dataset, data_dir):
    """The same files as a list."""
    return [path for files in loading_files(dataset, data_dir).values() for path in files.values()]


def measurement_of(study, dataset_id):
    """The study's loading measurement on a dataset."""
    return next(entry for entry in study.loading if entry.dataset.id == dataset_id)


def expected_options(dataset, split):
    """What convert_dataset.py is told to expect of a file, as command-line options."""
    options = f"--label-column {dataset.spec['label_column']} --classes {dataset.spec['classes']}"
    if dataset.shape is not None:
        options += f" --rows {dataset.shape[f'{split}_samples']} --columns {dataset.shape['features'] + 1}"
    return options
