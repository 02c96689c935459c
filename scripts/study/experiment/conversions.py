"""How the files of a dataset are converted and scaled, and whether files that are there were made in this way.

The names of converted files have a digest of it, so that two definitions which share a data folder share no file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from study.core.errors import StudyError
from study.core.files import read_json
from study.data import conversion, feature_scaling, source_state
from study.data.images import conversion as image_conversion
from study.data.images.layouts import Source
from study.data.loaders import read_sidecar
from study.data.tabular import Form
from study.experiment.definition import RunDefinition
from study.experiment.identity import fingerprint


def describe(spec: Mapping[str, Any], definition: Mapping[str, Any], file: str) -> dict[str, Any]:
    """What the sidecar of a converted file says of its conversion.

    spec: the benchmark's YAML, or what a run's definition has of it. definition: of the dataset.
    """
    form = spec["files"][file]
    if form.get("kind") != "images":
        return _as_stored(conversion.describe_conversion(Form.of(form)))
    source = Source(definition.get("layout", "tfrecord"), "", definition.get("first_label"))
    return _as_stored(image_conversion.describe_conversion(source, image_options(spec)))


def image_options(spec: Mapping[str, Any]) -> image_conversion.Options:
    """What the images of a benchmark become."""
    model = spec["model"]
    return image_conversion.Options(model["classes"], model["channels"], model["resize"])


def name_conversion(spec: Mapping[str, Any], definition: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """A digest of how all files of a dataset are converted. sources: {file: path}, of files of the user's own."""
    return fingerprint({"files": {file: describe(spec, definition, file) for file in spec["files"]}, **sources})


def name_scaling(converted: str) -> str:
    """A digest of how the converted files of the name ``converted`` are scaled."""
    return fingerprint({"converted": converted, "scaling_version": feature_scaling.SCALING_VERSION})


def is_outdated(sidecar: str, described: Mapping[str, Any], sources: Sequence[str]) -> bool:
    """Whether a converted file was made in another way, or of files with another state; False if there is none.

    described: as `describe`. sources: the paths that its conversion reads.
    """
    try:
        content = read_sidecar(sidecar)
    except StudyError:
        return False  # what reads it says what is wrong
    return not _is_made_as(content, described) or source_state.has_changed(sources, sidecar)


def check_run(run: RunDefinition) -> None:
    """Raise `StudyError` if a converted or scaled file of a run was made in another way than its definition says."""
    for file, paths in run.data.items():
        check_file(paths["sidecar"], describe(run.benchmark, run.dataset, file))
    scaled = {file: paths for file, paths in run.data.items() if "scaled" in paths}
    for paths in scaled.values():
        check_scaled(paths["scaled"], {file: each["sidecar"] for file, each in scaled.items()})


def check_file(sidecar: str, described: Mapping[str, Any]) -> None:
    """Raise `StudyError` if a converted file was made in another way. described: as `describe`."""
    if not _is_made_as(read_sidecar(sidecar), described):
        raise StudyError(
            f"{sidecar}: its file was converted by another definition, or by another version of the code; start again, "
            "and it is converted again"
        )


def describe_scaling(sidecars: Mapping[str, str]) -> dict[str, Any]:
    """What the sidecar of a scaled file says. sidecars: {file: its converted file's}, of all that the scalers fit."""
    fitted = {file: read_sidecar(path).get("sha256") for file, path in sidecars.items()}
    return {"scaling_version": feature_scaling.SCALING_VERSION, "fitted_on": fitted}


def has_other_scaling(path: str, sidecars: Mapping[str, str]) -> bool:
    """Whether the sidecar of a scaled file, or of scalers, is of other converted files; False without one."""
    try:
        return bool(read_json(path) != describe_scaling(sidecars))
    except (OSError, StudyError):
        return False  # what reads it says what is wrong


def check_scaled(path: str, sidecars: Mapping[str, str]) -> None:
    """Raise `StudyError` if a scaled file, or scalers, are of other converted files. path: of the sidecar."""
    if read_json(path) != describe_scaling(sidecars):
        raise StudyError(f"{path}: its file was scaled from other converted files; start again, and it is scaled again")


def _is_made_as(content: Mapping[str, Any], described: Mapping[str, Any]) -> bool:
    return all(content.get(name) == value for name, value in described.items())


def _as_stored(content: Mapping[str, Any]) -> dict[str, Any]:
    """Content as it is read from a JSON file."""
    return dict(json.loads(json.dumps(content)))
