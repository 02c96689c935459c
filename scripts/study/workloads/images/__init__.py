"""The part of all workloads on images that is independent of a framework: their data and metrics' names."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from study.core.errors import StudyError
from study.data.images import synthetic
from study.data.images.codec import Codec
from study.data.images.formats import open_format
from study.data.images.source import Images, Reader, Shape
from study.data.key_matching import check_classes
from study.data.loaders import read_sidecar
from study.data.samples import Can
from study.workloads import base

TOP, TOP5_ACCURACY = 5, "top5_accuracy"  # the right class is among the five most probable ones
# Of the moving statistics. With Keras's own 0.99, a run of a few hundred steps is evaluated on those of its begin.
BATCH_NORM_DECAY = 0.9
# Keys of ``model`` that a dataset may give: they belong to the images as much as to the network.
INPUT: dict[str, dict[str, Any]] = {
    "image_size": base.COUNT,
    "resize": base.COUNT,
    "channels": {"enum": [1, 3]},
    "classes": {"type": "integer", "minimum": 2},
    "flip": {"type": "boolean"},
}


def schema_of(**own: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of the ``model`` of a benchmark on images, with these keys of its own."""
    return base.all_of(**INPUT, l2={"type": "number", "minimum": 0}, **own)


def add_input_keys(spec: dict[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """A benchmark's YAML with the keys of the network's input that a study's dataset gives, in its ``model``.

    A dataset that gives an image size and no ``resize`` has images of that size.
    """
    input_keys = {name: definition[name] for name in INPUT if name in definition}
    if not isinstance(spec["model"], dict) or not input_keys:
        return spec
    if "image_size" in input_keys:
        input_keys.setdefault("resize", input_keys["image_size"])
    return {**spec, "model": {**spec["model"], **input_keys}}


class ImageWorkload(base.Workload):
    """A workload whose samples are images. Its package adds the models, and ``minimum_size`` of their layers."""

    kind = "images"
    can = Can.RANDOM_ACCESS
    model_schema: ClassVar[dict[str, Any]] = schema_of()
    codec: Codec | None = None  # that makes synthetic images

    @property
    def metric_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Accuracy, and top-5 accuracy if there are more classes than five."""
        return ("accuracy", TOP5_ACCURACY) if self.spec["model"]["classes"] > TOP else ("accuracy",)

    @property
    def minimum_size(self) -> int:
        """The smallest image side, in pixels, that the network's layers can take."""
        return 1

    def synthetic_blocks(self, file: str, shape: Mapping[str, Any], seed: int) -> Iterable[bytes]:
        """Yield the bytes of a TFRecord file of synthetic images; see `study.data.images.synthetic`."""
        if self.codec is None:
            raise TypeError("synthetic images need a codec")
        split = self.spec["files"][file]["split"]
        return synthetic.describe_images({**shape, "seed": seed}, self.spec["model"], split, file).blocks(self.codec)

    def open(
        self, files: base.Files, loader: str, threads: int, loaded: Collection[str] | None = None
    ) -> dict[str, Images]:
        """Open the images of each file, {file: `Images`}; loader ``memory`` reads pixels now, others in training.

        Args:
            files: of the run.
            loader: the format, a name in `study.data.images.formats.FORMATS`.
            threads: that read and decode at once, the rank's cores.
            loaded: those whose pixels are read now, None for all; others when they are used.

        Raises:
            StudyError: a file is not the one that was converted, or two have other classes.
        """
        model = self.spec["model"]
        shape = Shape(model["image_size"], model["resize"], model["channels"], model["classes"])
        images_by_file, names = {}, {}
        for file, paths in files.items():
            described = read_sidecar(paths["sidecar"])
            names[file] = described["class_names"]
            images = open_format(loader, Path(paths["path"]), described["shape"][0], model["classes"])
            images_by_file[file] = Images(Reader(images), shape, threads)
            if loaded is None or file in loaded:
                images_by_file[file].load()
        (first, *others) = names
        for other in others:
            if names[other] != names[first]:
                raise StudyError(
                    f"{files[other]['path']}: its classes {names[other]} are not those of {first}: {names[first]}; "
                    f"give both folders the same sub-folders{_explain_lookalikes(names[other], names[first])}"
                )
        labels = {
            file: np.unique(images_by_file[file].reader.images.index["label"]).tolist() for file in images_by_file
        }
        for first, other in itertools.permutations(images_by_file, 2):
            if (self.spec["files"][first]["split"], self.spec["files"][other]["split"]) == ("train", "test"):
                train, test = ([_name_class(label, names[file]) for label in labels[file]] for file in (first, other))
                check_classes({files[first]["path"]: train}, {files[other]["path"]: test})
        return images_by_file

    def arrange(self, tables: Mapping[str, Any], seed: int) -> base.Data:
        """The test set is also the validation set; training images are cut out and mirrored at random by ``seed``."""
        train, test = tables["train"], tables["test"]
        height, width, channels = train.shape
        changing = train.change_at_random(seed, self.spec["model"]["flip"])
        return base.Data(changing, test, test, features=height * width * channels)


def _name_class(label: int, names: list[str] | None) -> str:
    """Name of a class in messages; its label if the classes have no names."""
    return str(label) if names is None else names[label]


def _explain_lookalikes(names: list[str], others: list[str]) -> str:
    """A hint if class names differ only in their Unicode form: macOS writes accented letters as two characters."""
    ours, theirs = ([unicodedata.normalize("NFC", name) for name in each] for each in (names or [], others or []))
    return ", with accented letters written alike in Unicode (NFC or NFD)" if ours == theirs else ""
