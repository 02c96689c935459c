"""Checks of whether a run is finished: by the files that it wrote, not by times or by Snakemake's notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from study.core import validation
from study.core.errors import StudyError
from study.core.paths import OUTCOME
from study.data import feature_scaling, source_state
from study.data.loaders import read_sidecar
from study.experiment import conversions, inputs
from study.experiment.definition import RunDefinition
from study.experiment.study import Dataset

HasOtherData = Callable[[str, dict[str, Any]], bool]  # of a file of the dataset and its part of the provenance


def is_finished(run: RunDefinition, folder: str | Path, has_other_data: HasOtherData) -> bool:
    """Whether a folder has the outcome of ``run``: one of its fingerprint, which was trained on its data.

    True also if run.yaml or provenance.json cannot be read: an outcome is kept unless they show that it is another's.
    """
    folder = Path(folder)
    if not (folder / OUTCOME).exists():
        return False
    try:
        fingerprint = RunDefinition.read(folder / "run.yaml").fingerprint
        data = validation.load_valid_json(folder / "provenance.json", "provenance")["data"]
    except StudyError:
        return True
    return fingerprint == run.fingerprint and not any(has_other_data(file, data[file]) for file in data)


def is_measured(path: str, has_other_data: HasOtherData) -> bool:
    """Whether a file has a loading measurement of the dataset; True also if it is there and cannot be read."""
    try:
        data = validation.load_valid_json(path, "loading")["provenance"].get("data", {})
    except StudyError:
        return Path(path).exists()
    return not any(has_other_data(file, data[file]) for file in data)


def has_other_source(dataset: Dataset, data_dir: str, file: str, trained_on: Mapping[str, Any]) -> bool:
    """Whether a dataset's file has changed since a run was trained on it, or has a newer conversion.

    trained_on: the file's part of the run's provenance.
    """
    if file not in dataset.file_keys:
        return False
    expected = conversions.describe_conversion(dataset.spec, dataset.definition, file) | {
        "scaling_version": feature_scaling.SCALING_VERSION
    }
    versions = ("converter_version", "scaling_version")
    if any(trained_on.get(name, expected[name]) != expected[name] for name in versions):
        return True
    return source_state.has_other_content(inputs.list_read_paths(dataset, data_dir, file), dict(trained_on))


def has_other_sidecar(run: RunDefinition, file: str, trained_on: Mapping[str, Any]) -> bool:
    """Whether a file was converted from other content since a run was trained on it, by its sidecar."""
    source = read_sidecar(run.data[file]["sidecar"])["source"] if file in run.data else trained_on["source"]
    return bool(source["sha256"] != trained_on["source"].get("sha256"))
