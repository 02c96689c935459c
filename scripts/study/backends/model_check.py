"""The check, before any run, that the models of own benchmarks keep what the keys of a run promise.

Each framework has a module ``model_check`` of its own. Its function ``check_model`` builds the model as two ranks build
it, tries it on a few synthetic samples, and raises `StudyError` for what it does not keep. No other rank is needed.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from study import workloads
from study.core.errors import StudyError
from study.data.conversion import convert
from study.data.loaders import read_sidecar
from study.data.samples import Arrays, SampleSource
from study.data.tabular import Form
from study.experiment.definition import RunDefinition
from study.workloads.base import Table, Workload
from study.workloads.synthetic import generate_file

SAMPLES = {"train_samples": 20, "test_samples": 10}


def explain_refusal(run: RunDefinition, shape: Mapping[str, int], last_batch: int | None = None) -> str | None:
    """The reason why the model of ``run`` cannot be trained as its keys promise; None if there is none.

    shape: of the dataset, see `study.experiment.study.Dataset`; its numbers of samples do not matter.
    last_batch: samples of an epoch's last batch of a rank; None if that is not known.

    Raises:
        Exception: of the benchmark's own code. It is the user's, so it may be anything.
    """
    framework_check = importlib.import_module(f"study.backends.{run.framework}.model_check")
    benchmark = workloads.load_benchmark(run.benchmark["name"], run.benchmark, run.framework)
    samples = make_few_samples(benchmark, run, shape)
    try:
        framework_check.check_model(benchmark, run, samples, last_batch)
    except StudyError as error:
        return str(error)
    return None


def make_few_samples(workload: Workload, run: RunDefinition, shape: Mapping[str, int]) -> SampleSource:
    """Make a few synthetic training samples; black images. shape: as of `explain_refusal`."""
    model = run.benchmark["model"]
    if workload.kind == "images":
        x = np.zeros((2, model["resize"], model["resize"], model["channels"]), np.float32)
        return Arrays(x, np.eye(model["classes"], dtype=np.float32)[[0, 1]])
    tables = {}
    definition = {**shape, **SAMPLES, "seed": 1}
    with tempfile.TemporaryDirectory() as folder:
        for file, form in run.benchmark["files"].items():
            raw, matrix = Path(folder) / form["name"], Path(folder) / f"{file}.npy"
            generate_file(raw, run.benchmark["name"], run.benchmark, definition, file)
            convert(raw, matrix, matrix.with_suffix(".json"), Form.from_spec(form))
            codes = read_sidecar(matrix.with_suffix(".json"))["codes"]
            tables[file] = Table(np.load(matrix, allow_pickle=False), [code["values"] for code in codes])
        return workload.samples(tables, run.derived.seed).train
