"""Synthetic images: each class has a pattern of its own, each image that pattern plus noise."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.data.images import codec
from study.data.images.formats import example

QUALITY = 90  # of the JPEG, unless a record size is given
CELLS = 4  # a pattern has so many cells along each side
CONTRAST = 48  # standard deviation of a pattern, of 255
RECORDS_AT_ONCE = 64
COMMENT_BYTES = 65_533  # the most in one JPEG comment
COMMENT = b"\xff\xfe"  # marker of a JPEG comment, which decoders skip


@dataclass(frozen=True)
class Images:
    """One file of synthetic images.

    Args:
        number: of images; their classes are balanced.
        side: of an image, in pixels.
        channels: 1 or 3.
        classes: number of classes.
        noise: its standard deviation, as a multiple of the pattern's.
        record_bytes: size of each encoded image; None for what JPEG at quality 90 gives. The quality is chosen to come
            near it, and the rest is filled with a comment, which decoders skip.
        seed: of the dataset; all its files share the patterns.
        split: 1 for training, 2 for test images.
    """

    number: int
    side: int
    channels: int
    classes: int
    noise: float
    record_bytes: int | None
    seed: int
    split: int

    def blocks(self) -> Iterator[bytes]:
        """The bytes of a TFRecord file with ImageNet's features, some records at a time."""
        import tensorflow as tf

        labels = np.random.default_rng([self.seed, self.split]).permutation(np.arange(self.number) % self.classes)
        patterns, quality = self._patterns(), None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "block"
            for first in range(0, self.number, RECORDS_AT_ONCE):
                with tf.io.TFRecordWriter(str(path)) as writer:
                    for position in range(first, min(first + RECORDS_AT_ONCE, self.number)):
                        pixels = self._pixels(position, patterns[labels[position]])
                        quality = quality or self._quality(pixels)
                        writer.write(example(self._encoded(position, pixels, quality), int(labels[position]) + 1))
                yield path.read_bytes()

    def _patterns(self) -> np.ndarray:
        """float32 (classes, side, side, channels) around 0, smooth."""
        import tensorflow as tf

        drawn = np.random.default_rng([self.seed, 0]).standard_normal((self.classes, CELLS, CELLS, self.channels))
        larger = tf.image.resize(drawn.astype(np.float32), (self.side, self.side), method="bilinear")
        return CONTRAST * np.asarray(larger)

    def _pixels(self, position: int, pattern: np.ndarray) -> codec.Pixels:
        drawn = np.random.default_rng([self.seed, self.split, position])
        noise = drawn.standard_normal(pattern.shape, dtype=np.float32) * np.float32(CONTRAST * self.noise)
        return np.clip(np.rint(128 + pattern + noise), 0, 255).astype(np.uint8)

    def _quality(self, pixels: codec.Pixels) -> int:
        """The highest quality whose JPEG is not larger than the record; taken from the first image."""
        if self.record_bytes is None:
            return QUALITY
        low, high = 1, 100
        while low < high:
            middle = (low + high + 1) // 2
            is_small = len(codec.encode_jpeg(pixels, middle)) <= self.record_bytes
            low, high = (middle, high) if is_small else (low, middle - 1)
        return low

    def _encoded(self, position: int, pixels: codec.Pixels, quality: int) -> bytes:
        content = codec.encode_jpeg(pixels, quality)
        if self.record_bytes is None:
            return content
        return with_comment(content, self.record_bytes, np.random.default_rng([self.seed, self.split, position, 1]))


def with_comment(content: bytes, size: int, drawn: np.random.Generator) -> bytes:
    """A JPEG with comments of random bytes, so that it has ``size`` bytes; as it is if it is larger already."""
    begin, comments, missing = content[:2], [], size - len(content)
    while missing >= 4:
        text = min(missing - 4, COMMENT_BYTES)
        comments.append(COMMENT + (text + 2).to_bytes(2, "big") + drawn.bytes(text))
        missing -= text + 4
    return b"".join([begin, *comments, content[2:]])


def of_dataset(definition: dict[str, Any], model: dict[str, Any], split: str, place: str) -> Images:
    """The images of one file of a ``synthetic_images`` dataset.

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
        side=model["resize"],
        channels=model["channels"],
        classes=model["classes"],
        noise=definition.get("noise", 1.0),
        record_bytes=None if kilobytes is None else round(kilobytes * 1000),
        seed=definition["seed"],
        split=1 if split == "train" else 2,
    )
