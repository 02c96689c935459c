"""How the files of a dataset are converted and scaled, and checks that existing files were made in this way.

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
from study.experiment.identity import compute_fingerprint


def describe_conversion(spec: Mapping[str, Any], definition: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The entries by which the sidecar of a converted file describes its conversion.

    spec: the benchmark's YAML, or what a run's definition has of it. definition: of the dataset.
    """
    form = spec["files"][file]
    if form.get("kind") != "images":
        return _as_stored(conversion.describe_conversion(Form.from_spec(form)))
    source = Source(definition.get("layout", "tfrecord"), "", definition.get("first_label"))
    return _as_stored(image_conversion.describe_conversion(source, select_image_options(spec)))


def select_image_options(spec: Mapping[str, Any]) -> image_conversion.Options:
    """The settings by which a benchmark's images are converted: classes, channels, size."""
    model = spec["model"]
    return image_conversion.Options(model["classes"], model["channels"], model["resize"])


def digest_conversion(spec: Mapping[str, Any], definition: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """A digest of how all files of a dataset are converted. sources: {file: path}, of files of the user's own."""
    return compute_fingerprint(
        {"files": {file: describe_conversion(spec, definition, file) for file in spec["files"]}, **sources}
    )


def digest_scaling(converted: str) -> str:
    """A digest of how converted files are scaled. converted: the digest of `digest_conversion`."""
    return compute_fingerprint({"converted": converted, "scaling_version": feature_scaling.SCALING_VERSION})


def is_outdated(sidecar: str, described: Mapping[str, Any], sources: Sequence[str]) -> bool:
    """Whether a converted file was made in another way, or from other content; False if there is none.

    described: by `describe_conversion`. sources: the paths that its conversion reads.
    """
    try:
        content = read_sidecar(sidecar)
    except StudyError:
        return False  # what reads it says what is wrong
    return not _is_made_as(content, described) or source_state.has_changed(sources, sidecar)


def check_run_files(run: RunDefinition) -> None:
    """Raise `StudyError` if a converted or scaled file of a run was made in another way than its definition says."""
    for file, paths in run.data.items():
        check_converted_file(paths["sidecar"], describe_conversion(run.benchmark, run.dataset, file))
    scaled = {file: paths for file, paths in run.data.items() if "scaled" in paths}
    for paths in scaled.values():
        check_scaled_file(paths["scaled"], {file: each["sidecar"] for file, each in scaled.items()})


def check_converted_file(sidecar: str, described: Mapping[str, Any]) -> None:
    """Raise `StudyError` if a converted file was made in another way. described: by `describe_conversion`."""
    if not _is_made_as(read_sidecar(sidecar), described):
        raise StudyError(
            f"{sidecar}: its file was converted by another definition, or by another version of the code; start again, "
            "and it is converted again"
        )


def describe_scaling(sidecars: Mapping[str, str]) -> dict[str, Any]:
    """The content of a scaled file's sidecar. sidecars: {file: sidecar} of the converted files that scalers fit."""
    fitted = {file: read_sidecar(path).get("sha256") for file, path in sidecars.items()}
    return {"scaling_version": feature_scaling.SCALING_VERSION, "fitted_on": fitted}


def has_other_scaling(path: str, sidecars: Mapping[str, str]) -> bool:
    """Whether a scaled file, or scalers, were made from other converted files, by its sidecar; False without one."""
    try:
        return bool(read_json(path) != describe_scaling(sidecars))
    except (OSError, StudyError):
        return False  # what reads it says what is wrong


def check_scaled_file(path: str, sidecars: Mapping[str, str]) -> None:
    """Raise `StudyError` if a scaled file, or scalers, were made from other converted files. path: of the sidecar."""
    if read_json(path) != describe_scaling(sidecars):
        raise StudyError(f"{path}: its file was scaled from other converted files; start again, and it is scaled again")


def _is_made_as(content: Mapping[str, Any], described: Mapping[str, Any]) -> bool:
    """Whether a sidecar has all entries of a description."""
    return all(content.get(name) == value for name, value in described.items())


def _as_stored(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` as it comes back from a JSON file: lists for tuples."""
    return dict(json.loads(json.dumps(content)))
