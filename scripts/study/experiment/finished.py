"""Whether a folder holds the outcome of a run: by what the run wrote, not by times or by what Snakemake noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.errors import StudyError
from study.core.paths import OUTCOME
from study.data import feature_scaling, source_state
from study.data.loaders import read_sidecar
from study.experiment import conversions, inputs
from study.experiment.definition import RunDefinition
from study.experiment.study import Dataset

HasOtherData = Callable[[str, dict[str, Any]], bool]  # of a file of the dataset and its part of the provenance


def is_finished(run: RunDefinition, folder: str | Path, has_other_data: HasOtherData) -> bool:
    """Whether a folder has the outcome of ``run``: of its fingerprint, and trained on its data.

    What cannot be read shows no other run: an outcome is kept as long as nothing shows that it is another one's.
    """
    folder = Path(folder)
    if not (folder / OUTCOME).exists():
        return False
    try:
        fingerprint = RunDefinition.read(folder / "run.yaml").fingerprint
        data = checked.load_json(folder / "provenance.json", "provenance")["data"]
    except StudyError:
        return True
    return fingerprint == run.fingerprint and not any(has_other_data(file, data[file]) for file in data)


def is_measured(path: str, has_other_data: HasOtherData) -> bool:
    """Whether a file has a loading measurement of the dataset; one that cannot be read is kept, as an outcome is."""
    try:
        data = checked.load_json(path, "loading")["provenance"].get("data", {})
    except StudyError:
        return Path(path).exists()
    return not any(has_other_data(file, data[file]) for file in data)


def has_other_source(dataset: Dataset, data_dir: str, file: str, trained_on: Mapping[str, Any]) -> bool:
    """Whether a run was trained on another content of a dataset's file than is there, or on an older conversion of it.

    trained_on: the file's part of the run's provenance.
    """
    if file not in dataset.files:
        return False
    expected = conversions.describe(dataset.spec, dataset.definition, file) | {
        "scaling_version": feature_scaling.SCALING_VERSION
    }
    versions = ("converter_version", "scaling_version")
    if any(trained_on.get(name, expected[name]) != expected[name] for name in versions):
        return True
    return source_state.has_other_content(inputs.read_paths(dataset, data_dir, file), dict(trained_on))


def has_other_sidecar(run: RunDefinition, file: str, trained_on: Mapping[str, Any]) -> bool:
    """Whether a run was trained on another content of a file than that which was converted last."""
    source = read_sidecar(run.data[file]["sidecar"])["source"] if file in run.data else trained_on["source"]
    return bool(source["sha256"] != trained_on["source"].get("sha256"))
