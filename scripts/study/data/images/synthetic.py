"""Synthetic images: each class has a pattern of its own, each image that pattern plus noise.

All bytes of an encoded image are of its pixels, so that decoding costs what an image of this size in pixels and bytes
costs.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.data.images.codec import Codec, Pixels

QUALITY = 90  # of the JPEG, unless a record size is given
CELLS = 4  # a pattern has so many cells along each side
CONTRAST = 48  # standard deviation of a pattern, of 255
RECORDS_AT_ONCE = 64
HEADER_BYTES = 623  # of a JPEG in colour
# Measured, of JPEGs of these images at quality 100 and 1: bytes per stored sample at least and at most, by the noise.
# Of colours, TensorFlow's encoder stores two of three channels at half the size.
NOISES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)
MOST_BYTES = (0.09, 0.42, 0.55, 0.72, 0.92, 1.14, 1.33, 1.43)
LEAST_BYTES = (0.02, 0.02, 0.02, 0.02, 0.03, 0.04, 0.15, 0.23)


@dataclass(frozen=True)
class Images:
    """The definition of one file of synthetic images.

    Args:
        number: of images; their classes are balanced.
        height, width: of an image, in pixels.
        channels: 1 or 3.
        classes: number of classes.
        noise: its standard deviation, as a multiple of the pattern's.
        record_bytes: size of an encoded image, about: the JPEG quality is the one at which the first image comes
            nearest to it. None for what quality 90 gives.
        seed: of the dataset; all its files share the patterns.
        split: 1 for training, 2 for test images.
    """

    number: int
    height: int
    width: int
    channels: int
    classes: int
    noise: float
    record_bytes: int | None
    seed: int
    split: int

    def blocks(self, codec: Codec) -> Iterator[bytes]:
        """The bytes of a TFRecord file with ImageNet's features, some records at a time."""
        labels = np.random.default_rng([self.seed, self.split]).permutation(np.arange(self.number) % self.classes)
        patterns, quality = self._patterns(), None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "block"
            for first in range(0, self.number, RECORDS_AT_ONCE):
                with codec.open_record_writer(path) as write:
                    for position in range(first, min(first + RECORDS_AT_ONCE, self.number)):
                        pixels = self._pixels(position, patterns[labels[position]], codec)
                        quality = quality or self._quality(pixels, codec)
                        write(codec.make_example(codec.encode_jpeg(pixels, quality), int(labels[position]) + 1))
                yield path.read_bytes()

    def _patterns(self) -> np.ndarray:
        """float32 (classes, cells, cells, channels) around 0."""
        drawn = np.random.default_rng([self.seed, 0])
        return drawn.standard_normal((self.classes, CELLS, CELLS, self.channels)).astype(np.float32)

    def _pixels(self, position: int, pattern: np.ndarray, codec: Codec) -> Pixels:
        """The pattern, smooth at the size of the image, with the noise of this position."""
        smooth = CONTRAST * codec.enlarge(pattern, self.height, self.width)
        drawn = np.random.default_rng([self.seed, self.split, position])
        noise = drawn.standard_normal(smooth.shape, dtype=np.float32) * np.float32(CONTRAST * self.noise)
        return np.clip(np.rint(128 + smooth + noise), 0, 255).astype(np.uint8)

    def _quality(self, pixels: Pixels, codec: Codec) -> int:
        """The quality whose JPEG comes nearest to the size of the record; the highest of equals."""
        if self.record_bytes is None:
            return QUALITY
        low, high = 1, 100
        while low < high:
            middle = (low + high + 1) // 2
            is_small = len(codec.encode_jpeg(pixels, middle)) <= self.record_bytes
            low, high = (middle, high) if is_small else (low, middle - 1)
        near = (low, min(low + 1, 100))
        return min(near, key=lambda each: abs(len(codec.encode_jpeg(pixels, each)) - (self.record_bytes or 0)))


def compute_reachable_bytes(height: int, width: int, channels: int, noise: float) -> tuple[int, int]:
    """(smallest, largest) size in bytes of an encoded image that some JPEG quality surely gives."""
    samples = height * width if channels == 1 else height * width * 3 / 2
    least, most = (float(np.interp(noise, NOISES, per_sample)) for per_sample in (LEAST_BYTES, MOST_BYTES))
    return math.ceil(HEADER_BYTES + least * samples), math.floor(most * samples)


def compute_most_bytes(definition: dict[str, Any], model: dict[str, Any]) -> float:
    """The most bytes of an encoded image of a ``synthetic_images`` dataset; arguments as `describe_images`."""
    if "record_kb" in definition:
        return float(1000 * definition["record_kb"])
    height, width = (definition.get(f"stored_{name}", model["resize"]) for name in ("height", "width"))
    return compute_reachable_bytes(height, width, model["channels"], definition.get("noise", 1.0))[1]


def describe_images(definition: dict[str, Any], model: dict[str, Any], split: str, place: str) -> Images:
    """The definition of the images of one file of a ``synthetic_images`` dataset.

    Args:
        definition: the study's dataset.
        model: ``model`` of the benchmark with the dataset's own values: channels, classes, resize.
        split: train or test.
        place: for messages.
    """
    kilobytes = definition.get("record_kb")
    if model["classes"] > definition["train_samples"]:
        raise StudyError(f"{place}: {definition['train_samples']} training images are fewer than the classes")
    return Images(
        number=definition[f"{split}_samples"],
        height=definition.get("stored_height", model["resize"]),
        width=definition.get("stored_width", model["resize"]),
        channels=model["channels"],
        classes=model["classes"],
        noise=definition.get("noise", 1.0),
        record_bytes=None if kilobytes is None else round(kilobytes * 1000),
        seed=definition["seed"],
        split=1 if split == "train" else 2,
    )
