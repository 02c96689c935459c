"""The datasets of a study: checks of their definitions, and names by which studies share files."""

import hashlib
from pathlib import Path
from typing import Any

from study import workloads
from study.core import configuration, validation
from study.core.errors import StudyError
from study.data.images import synthetic
from study.data.images.layouts import FIRST_LABEL
from study.experiment.study import Dataset
from study.experiment.target import Target
from study.workloads import base, command, images

TARGET = "target_quality"  # no part of a dataset's definition, so that it never makes a run train again
IMAGE_SOURCES = ("image_files", "synthetic_images")
READ_BY = {"first_label": tuple(FIRST_LABEL)}  # keys of ``image_files`` that only some layouts read
ORIGIN = ("server", "checksums")  # of a ``url`` dataset: where its files come from, not what is in them


def build_dataset(key: str, definition: dict[str, Any], where: str) -> Dataset:
    """Check one entry of a study's ``datasets``, and return its `Dataset`. where: the file named in messages.

    Raises:
        StudyError: the benchmark does not exist, or cannot train on this dataset.
    """
    place = f"{where}: datasets.{key}"
    name = definition.get("benchmark", key)
    try:
        spec = configuration.load_named("benchmarks", name)
    except StudyError as error:
        raise StudyError(f"{place}.benchmark: {error}") from None
    if command.is_command(spec):
        raise StudyError(f"{place}: {name} is a command, which loads its own data; leave this dataset out")
    try:
        target = Target.from_declaration(definition.get(TARGET, spec.get(TARGET)))
    except StudyError as error:
        raise StudyError(f"{f'{place}.' if TARGET in definition else f'{_get_path(name)}: '}{error}") from None
    origin = {key: definition[key] for key in ORIGIN if definition["source"] == "url" and key in definition}
    left_out = ("benchmark", TARGET, *origin)
    definition = {name: value for name, value in definition.items() if name not in left_out}
    spec = images.add_input_keys(spec, definition)
    benchmark = workloads.load_workload(name, spec)
    _check_source(definition["source"], benchmark, name, place)
    validation.validate({"model": spec["model"]}, base.all_of(model=benchmark.model_schema), _get_path(name))
    if "momentum" in spec and spec["optimizer"] != "sgd":
        raise StudyError(f"{_get_path(name)}: momentum: optimizer: {spec['optimizer']} does not take it; leave it out")
    if "unmatched_at_most" in spec and not benchmark.joins_tables:
        raise StudyError(
            f"{_get_path(name)}: unmatched_at_most: has no effect: {name} joins no tables (joins_tables in "
            f"{workloads.locate_module(name)}); leave it out"
        )
    if definition["source"] == "path":
        _check_files(definition, spec, name, place)
    _check_layout_keys(definition, place)
    for file in origin.get("checksums", {}):
        if file not in spec["files"]:
            raise StudyError(
                f"{place}.checksums.{file}: {name} has no such file; its files: {', '.join(spec['files'])}"
            )
    if definition["source"] == "url":
        checksums = spec.get("checksums", {}), origin.get("checksums", {})
        origin["checksums"] = {file: checksums[0].get(file, {}) | checksums[1].get(file, {}) for file in spec["files"]}
    shape, samples = _derive_size(definition, spec, benchmark)
    if samples is not None and spec["validation_share"] and samples == (shape or {}).get("train_samples"):
        raise StudyError(
            f"{place}.train_samples: {samples} leave no validation sample ({spec['validation_share']:.0%})"
        )
    if benchmark.kind == "images":
        _check_images(name, benchmark, definition, shape, place)
    else:
        _check_width(name, benchmark, shape, place)
    identifier = _name_dataset(key, definition, spec, benchmark)
    return Dataset(key, identifier, name, definition, spec, shape, samples, target, origin)


def find_dataset(entry: dict[str, Any], datasets: dict[str, Dataset], place: str) -> Dataset:
    """The `Dataset` of a grid point or loading measurement: the named one, else the one named like its benchmark."""
    name = entry.get("dataset", entry["benchmark"])
    if name not in datasets:
        raise StudyError(f"{place}.dataset: there is no dataset '{name}'; datasets has: {', '.join(datasets)}")
    dataset = datasets[name]
    if dataset.benchmark != entry["benchmark"]:
        raise StudyError(
            f"{place}.benchmark: '{entry['benchmark']}' cannot use dataset '{name}', which is {dataset.benchmark}'s"
        )
    return dataset


def get_identity(dataset: Dataset) -> tuple[str, str]:
    """(benchmark, id) of a dataset: equal for equal datasets, even if studies use different names."""
    return dataset.benchmark, dataset.id


def _get_path(benchmark: str) -> str:
    """Path of a benchmark's YAML in messages."""
    return f"config/benchmarks/{benchmark}.yaml"


def _derive_size(
    definition: dict[str, Any], spec: dict[str, Any], benchmark: Any
) -> tuple[dict[str, int] | None, int | None]:
    """(shape of the files, samples per epoch), each None if known only from the files."""
    if definition["source"] == "url":
        return spec.get("shape"), spec["workload"]["train_samples"]
    if definition["source"] in ("path", "image_files"):
        return None, None
    size_keys = ("train_samples", "test_samples", "features")
    shape: dict[str, int] = {name: definition[name] for name in size_keys if name in definition}
    if definition["source"] == "synthetic_images":
        shape["features"] = spec["model"]["image_size"] ** 2 * spec["model"]["channels"]
    return shape, shape["train_samples"] - benchmark.validation_samples(shape["train_samples"])


def _check_source(source: str, benchmark: Any, name: str, place: str) -> None:
    """Raise `StudyError` for a source that the benchmark cannot have, such as tables for a network on images."""
    is_image_source = source in IMAGE_SOURCES
    if is_image_source != (benchmark.kind == "images"):
        fitting = IMAGE_SOURCES if benchmark.kind == "images" else ("url", "path", "synthetic")
        raise StudyError(f"{place}.source: {source}: {name} trains on {benchmark.kind}; use {' or '.join(fitting)}")
    if source == "url" and "url_path" not in benchmark.spec:
        raise StudyError(f"{place}.source: url: {_get_path(name)} has no url_path; use path or synthetic")


def _check_layout_keys(definition: dict[str, Any], place: str) -> None:
    """Raise `StudyError` for a key that the dataset's layout does not read: it would have no effect."""
    layout = definition.get("layout")
    for key, layouts in READ_BY.items():
        if key in definition and layout is not None and layout not in layouts:
            raise StudyError(
                f"{place}.{key}: has no effect with layout: {layout}; it is for {', '.join(layouts)}: leave it out"
            )


def _check_images(
    name: str, benchmark: Any, definition: dict[str, Any], shape: dict[str, int] | None, place: str
) -> None:
    """Raise `StudyError` for images that are too small for the network, or too few for the classes."""
    model = benchmark.spec["model"]
    size, resize, least = model["image_size"], model["resize"], benchmark.minimum_size
    if size < least:
        raise StudyError(f"{place}.image_size: {size} is too small: {name}'s layers need {least}")
    if resize < size:
        raise StudyError(f"{place}.resize: {resize} is smaller than image_size, {size}")
    _check_record_size(definition, model, place)
    if shape is not None and shape["train_samples"] < model["classes"]:
        raise StudyError(
            f"{place}.train_samples: {shape['train_samples']} are fewer than the {model['classes']} classes; give "
            "more, or set classes"
        )


def _check_record_size(definition: dict[str, Any], model: dict[str, Any], place: str) -> None:
    """Raise `StudyError` for a ``record_kb`` that no JPEG of so many pixels can have: nothing is padded."""
    if "record_kb" not in definition:
        return
    height, width = (definition.get(f"stored_{name}", model["resize"]) for name in ("height", "width"))
    least, most = synthetic.compute_reachable_bytes(height, width, model["channels"], definition.get("noise", 1.0))
    if not least <= definition["record_kb"] * 1000 <= most:
        raise StudyError(
            f"{place}.record_kb: {definition['record_kb']:g}: a JPEG of {width} x {height} pixels with this noise has "
            f"{least / 1000:.3g} to {most / 1000:.3g} kB; give other stored_width and stored_height (ImageNet's images "
            "have 500 x 375 pixels and 115 kB), or another record_kb"
        )


def _check_width(name: str, benchmark: Any, shape: dict[str, int] | None, place: str) -> None:
    """Raise `StudyError` for fewer features than the benchmark's layers can take."""
    try:
        least = benchmark.minimum_features
    except (KeyError, TypeError) as error:
        raise StudyError(f"{_get_path(name)}: model: not as the benchmark's code needs it: {error}") from None
    if shape is not None and shape["features"] < least:
        raise StudyError(f"{place}.features: {shape['features']} is too few: {name}'s layers need {least}")


def _check_files(definition: dict[str, Any], spec: dict[str, Any], benchmark: str, place: str) -> None:
    """Raise `StudyError` if a ``path`` dataset has other files than the benchmark."""
    given_files, expected_files = set(definition) - {"source"}, set(spec["files"])
    for file in sorted(given_files - expected_files):
        raise StudyError(f"{place}.{file}: {benchmark} has no such file; its files: {', '.join(spec['files'])}")
    for file in sorted(expected_files - given_files):
        raise StudyError(f"{place}: the key '{file}' is missing; {benchmark}'s files: {', '.join(spec['files'])}")


def _name_dataset(key: str, definition: dict[str, Any], spec: dict[str, Any], benchmark: base.Workload) -> str:
    """The id of a dataset, unique across studies, since studies share runs and converted files."""
    if definition["source"] == "url":
        return "candle"
    if definition["source"] == "path":
        files = "\n".join(str(Path(definition[file])) for file in spec["files"])
        return f"{key}-{hashlib.sha256(files.encode()).hexdigest()[:6]}"
    if definition["source"] == "image_files":
        files = "\n".join(f"{name} {definition[name]}" for name in sorted(definition))
        return f"{key}-{hashlib.sha256(files.encode()).hexdigest()[:6]}"
    if definition["source"] == "synthetic_images":
        return _name_synthetic_images(definition, spec["model"])
    version = benchmark.generator_version
    name = "synthetic-{train_samples}-{test_samples}x{features}-seed{seed}".format(**definition)
    return name if version == 1 else f"{name}-v{version}"


def _name_synthetic_images(definition: dict[str, Any], model: dict[str, Any]) -> str:
    """The id of synthetic images: ``synthetic-400-100x28x28x3-10classes-seed1``, and keys that are not at default.

    ``v2``: the first version filled records with comments.
    """
    optional_keys = ("resize", "flip", "noise", "stored_width", "stored_height", "record_kb")
    suffix = "".join(f"-{name}{definition[name]}" for name in optional_keys if name in definition)
    suffix += "-v2" if "record_kb" in definition else ""
    return (
        f"synthetic-{definition['train_samples']}-{definition['test_samples']}"
        f"x{model['image_size']}x{model['image_size']}x{model['channels']}-{model['classes']}classes"
        f"-seed{definition['seed']}{suffix.lower()}"
    )
