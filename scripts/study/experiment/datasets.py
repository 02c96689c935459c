"""The datasets that a study defines: checked, and named so that studies share their files."""

import hashlib
from pathlib import Path
from typing import Any

from study import workloads
from study.core import checked, configuration
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


def dataset(key: str, definition: dict[str, Any], where: str) -> Dataset:
    """The `Dataset` of one entry of a study's ``datasets``. where: the file named in messages.

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
        target = Target.of(definition.get(TARGET, spec.get(TARGET)))
    except StudyError as error:
        raise StudyError(f"{f'{place}.' if TARGET in definition else f'{_file_of(name)}: '}{error}") from None
    origin = {key: definition[key] for key in ORIGIN if definition["source"] == "url" and key in definition}
    left_out = ("benchmark", TARGET, *origin)
    definition = {name: value for name, value in definition.items() if name not in left_out}
    spec = images.with_input(spec, definition)
    benchmark = workloads.get(name, spec)
    _check_source(definition["source"], benchmark, name, place)
    checked.check({"model": spec["model"]}, base.all_of(model=benchmark.model_schema), _file_of(name))
    if "momentum" in spec and spec["optimizer"] != "sgd":
        raise StudyError(f"{_file_of(name)}: momentum: optimizer: {spec['optimizer']} does not take it; leave it out")
    if "unmatched_at_most" in spec and not benchmark.joins_tables:
        raise StudyError(
            f"{_file_of(name)}: unmatched_at_most: has no effect: {name} joins no tables (joins_tables in "
            f"{workloads.file_of(name)}); leave it out"
        )
    if definition["source"] == "path":
        _check_files(definition, spec, name, place)
    _check_read(definition, place)
    for file in origin.get("checksums", {}):
        if file not in spec["files"]:
            raise StudyError(
                f"{place}.checksums.{file}: {name} has no such file; its files: {', '.join(spec['files'])}"
            )
    if definition["source"] == "url":
        given = spec.get("checksums", {}), origin.get("checksums", {})
        origin["checksums"] = {file: given[0].get(file, {}) | given[1].get(file, {}) for file in spec["files"]}
    shape, samples = _size(definition, spec, benchmark)
    if samples is not None and spec["validation_share"] and samples == (shape or {}).get("train_samples"):
        raise StudyError(
            f"{place}.train_samples: {samples} leave no validation sample ({spec['validation_share']:.0%})"
        )
    if benchmark.kind == "images":
        _check_images(name, benchmark, definition, shape, place)
    else:
        _check_width(name, benchmark, shape, place)
    found = _id(key, definition, spec, benchmark)
    return Dataset(key, found, name, definition, spec, shape, samples, target, origin)


def dataset_of(entry: dict[str, Any], datasets: dict[str, Dataset], place: str) -> Dataset:
    """The `Dataset` that a grid point or loading measurement names; by default the one named like its benchmark."""
    name = entry.get("dataset", entry["benchmark"])
    if name not in datasets:
        raise StudyError(f"{place}.dataset: there is no dataset '{name}'; datasets has: {', '.join(datasets)}")
    found = datasets[name]
    if found.benchmark != entry["benchmark"]:
        raise StudyError(
            f"{place}.benchmark: '{entry['benchmark']}' cannot use dataset '{name}', which is {found.benchmark}'s"
        )
    return found


def identity(found: Dataset) -> tuple[str, str]:
    """Equal for equal datasets, even if studies use different names."""
    return found.benchmark, found.id


def _file_of(benchmark: str) -> str:
    return f"config/benchmarks/{benchmark}.yaml"


def _size(definition: dict[str, Any], spec: dict[str, Any], benchmark: Any) -> tuple[dict[str, int] | None, int | None]:
    """Shape of the files, and samples per epoch; None if known only from the files."""
    if definition["source"] == "url":
        return spec.get("shape"), spec["workload"]["train_samples"]
    if definition["source"] == "path":
        return None, None
    if definition["source"] == "image_files":
        return None, None
    given = ("train_samples", "test_samples", "features")
    shape: dict[str, int] = {name: definition[name] for name in given if name in definition}
    if definition["source"] == "synthetic_images":
        shape["features"] = spec["model"]["image_size"] ** 2 * spec["model"]["channels"]
    return shape, shape["train_samples"] - benchmark.validation_samples(shape["train_samples"])


def _check_source(source: str, benchmark: Any, name: str, place: str) -> None:
    of_images = source in IMAGE_SOURCES
    if of_images != (benchmark.kind == "images"):
        fitting = IMAGE_SOURCES if benchmark.kind == "images" else ("url", "path", "synthetic")
        raise StudyError(f"{place}.source: {source}: {name} trains on {benchmark.kind}; use {' or '.join(fitting)}")
    if source == "url" and "url_path" not in benchmark.spec:
        raise StudyError(f"{place}.source: url: {_file_of(name)} has no url_path; use path or synthetic")


def _check_read(definition: dict[str, Any], place: str) -> None:
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
    """Raise `StudyError` for synthetic images that no JPEG of their pixels gives this size: nothing is padded."""
    if "record_kb" not in definition:
        return
    height, width = (definition.get(f"stored_{name}", model["resize"]) for name in ("height", "width"))
    least, most = synthetic.reachable_bytes(height, width, model["channels"], definition.get("noise", 1.0))
    if not least <= definition["record_kb"] * 1000 <= most:
        raise StudyError(
            f"{place}.record_kb: {definition['record_kb']:g}: a JPEG of {width} x {height} pixels with this noise has "
            f"{least / 1000:.3g} to {most / 1000:.3g} kB; give other stored_width and stored_height (ImageNet's images "
            "have 500 x 375 pixels and 115 kB), or another record_kb"
        )


def _check_width(name: str, benchmark: Any, shape: dict[str, int] | None, place: str) -> None:
    try:
        least = benchmark.minimum_features
    except (KeyError, TypeError) as error:
        raise StudyError(f"{_file_of(name)}: model: not as the benchmark's code needs it: {error}") from None
    if shape is not None and shape["features"] < least:
        raise StudyError(f"{place}.features: {shape['features']} is too few: {name}'s layers need {least}")


def _check_files(definition: dict[str, Any], spec: dict[str, Any], benchmark: str, place: str) -> None:
    given, wanted = set(definition) - {"source"}, set(spec["files"])
    for file in sorted(given - wanted):
        raise StudyError(f"{place}.{file}: {benchmark} has no such file; its files: {', '.join(spec['files'])}")
    for file in sorted(wanted - given):
        raise StudyError(f"{place}: the key '{file}' is missing; {benchmark}'s files: {', '.join(spec['files'])}")


def _id(key: str, definition: dict[str, Any], spec: dict[str, Any], benchmark: base.Workload) -> str:
    """A name that is unique across studies, since studies share runs and converted files."""
    if definition["source"] == "url":
        return "candle"
    if definition["source"] == "path":
        files = "\n".join(str(Path(definition[file])) for file in spec["files"])
        return f"{key}-{hashlib.sha256(files.encode()).hexdigest()[:6]}"
    if definition["source"] == "image_files":
        files = "\n".join(f"{name} {definition[name]}" for name in sorted(definition))
        return f"{key}-{hashlib.sha256(files.encode()).hexdigest()[:6]}"
    if definition["source"] == "synthetic_images":
        return _images_id(definition, spec["model"])
    version = benchmark.generator_version
    made = "synthetic-{train_samples}-{test_samples}x{features}-seed{seed}".format(**definition)
    return made if version == 1 else f"{made}-v{version}"


def _images_id(definition: dict[str, Any], model: dict[str, Any]) -> str:
    """``synthetic-400-100x28x28x3-10classes-seed1``, and what is not by default.

    ``v2``: the first version filled records with comments.
    """
    given = ("resize", "flip", "noise", "stored_width", "stored_height", "record_kb")
    more = "".join(f"-{name}{definition[name]}" for name in given if name in definition)
    more += "-v2" if "record_kb" in definition else ""
    return (
        f"synthetic-{definition['train_samples']}-{definition['test_samples']}"
        f"x{model['image_size']}x{model['image_size']}x{model['channels']}-{model['classes']}classes"
        f"-seed{definition['seed']}{more.lower()}"
    )
