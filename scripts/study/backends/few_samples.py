"""A few samples of a dataset's shape, on which a model is tried before any run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from study.data.conversion import convert
from study.data.loaders import read_sidecar
from study.data.samples import Arrays, SampleSource
from study.data.tabular import Form
from study.experiment.definition import RunDefinition
from study.workloads.base import Table, Workload
from study.workloads.synthetic import generate

SAMPLES = {"train_samples": 20, "test_samples": 10}


def few_samples(workload: Workload, run: RunDefinition, shape: Mapping[str, int]) -> SampleSource:
    """Synthetic training samples; black images. shape: of the dataset; its numbers of samples do not matter."""
    model = run.benchmark["model"]
    if workload.kind == "images":
        x = np.zeros((2, model["resize"], model["resize"], model["channels"]), np.float32)
        return Arrays(x, np.eye(model["classes"], dtype=np.float32)[[0, 1]])
    tables = {}
    definition = {**shape, **SAMPLES, "seed": 1}
    with tempfile.TemporaryDirectory() as folder:
        for file, form in run.benchmark["files"].items():
            raw, matrix = Path(folder) / form["name"], Path(folder) / f"{file}.npy"
            generate(raw, run.benchmark["name"], run.benchmark, definition, file)
            convert(raw, matrix, matrix.with_suffix(".json"), Form.of(form))
            codes = read_sidecar(matrix.with_suffix(".json"))["codes"]
            tables[file] = Table(np.load(matrix, allow_pickle=False), [code["values"] for code in codes])
        return workload.samples(tables, run.derived.seed).train
