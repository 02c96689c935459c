"""Images as samples: read, decoded and changed at random one batch at a time, while the model trains."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.data.images import augmentation
from study.data.images.formats import Format
from study.data.order import Positions, draw_change_words
from study.data.samples import Batch, Can, Changes, SampleSource

REMEMBERED = 64  # batches, among which an image that cannot be decoded is looked for


@dataclass(frozen=True)
class Shape:
    """What the model gets of an image.

    Args:
        side: of the square that it gets, in pixels.
        resize: of the square to which an image is scaled before, from which the other is cut out.
        channels: 1 or 3.
        classes: number of classes.
    """

    side: int
    resize: int
    channels: int
    classes: int


class Reader:
    """Reads from one format; keeps the error that a framework would wrap into one of its own.

    remote: the name of the reader that a framework uses instead, in another process; None for this object itself.
    """

    remote: str | None = None

    def __init__(self, images: Format) -> None:
        self.images = images
        self.error: StudyError | None = None
        self.recent: collections.deque[np.ndarray] = collections.deque(maxlen=REMEMBERED)

    def read(self, positions: np.ndarray) -> np.ndarray:
        """The stored bytes of the images at these positions."""
        self.recent.append(positions)
        try:
            return self.images.read(positions)
        except StudyError as error:
            self.error = error
            raise

    def failure(self) -> StudyError | None:
        """Why an image could not be read; None if all could."""
        return self.error


@dataclass(frozen=True)
class Images(SampleSource):
    """Images of one format. ``can`` is `Can.RANDOM_ACCESS`: they are read at the positions that the order gives.

    reader: of the format. target: what the model gets. threads: that read and decode at once. order: positions of the
    samples in the file, None for all in their order. seed, flip: of the augmentation in training; without a seed the
    centre of each image is taken. augmentation: of training, a value of the grid key. light_from: the epoch, from 0,
    from which on it is light; None for never. caches: whether an image stays in memory once it is decoded.
    """

    reader: Reader
    target: Shape
    threads: int = 1
    order: np.ndarray | None = None
    seed: int | None = None
    flip: bool = False
    augmentation: str = augmentation.LIGHT
    light_from: int | None = None
    caches: bool = False
    can = Can.RANDOM_ACCESS
    loaded: list[NDArray[np.uint8]] = field(default_factory=list, compare=False)  # pixels of all images, or nothing yet

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: (side, side, channels)."""
        return self.target.side, self.target.side, self.target.channels

    @property
    def mapped_files(self) -> list[Path]:
        """Files that are mapped, whose reads the kernel does not count."""
        return self.reader.images.mapped_files

    def keep_open(self) -> bool:
        """Open all files for good; see `study.data.images.formats.Format.keep_open`."""
        return self.reader.images.keep_open()

    @property
    def is_streamed(self) -> bool:
        """True: its samples are made while the model trains."""
        return True

    def __len__(self) -> int:
        return len(self.reader.images.index["label"]) if self.order is None else len(self.order)

    def load(self) -> None:
        """Read the pixels of a format that holds pixels; does nothing for others."""
        if self.reader.images.has_pixels and not self.loaded:
            self.loaded.append(self.reader.images.pixels())

    def rows(self, chosen: np.ndarray | slice) -> Images:
        """The samples at the positions or slice ``chosen``."""
        order = np.arange(len(self.reader.images.index["label"])) if self.order is None else self.order
        return replace(self, order=order[chosen])

    def read_by(self, reader: Reader) -> Images:
        """The same images, read by another reader of their format."""
        return replace(self, reader=reader)

    def keep_in_memory(self) -> Images:
        """The same images, each of which is read and decoded once; random changes are made anew."""
        return replace(self, caches=True)

    def change_at_random(self, seed: int, flip: bool) -> Images:
        """The same images, in training cut out and mirrored at random. seed: equal on all ranks of a run."""
        return replace(self, seed=seed, flip=flip)

    def change_augmentation(self, kind: str, light_from: int | None = None) -> Images:
        """The same images with another augmentation in training."""
        return replace(self, augmentation=kind, light_from=light_from)

    @property
    def changes_whole(self) -> bool:
        """True if whole images change at random in training, at least at first."""
        return self.augmentation in augmentation.OF_WHOLE_IMAGES

    def changes(self, chosen: Positions, epoch: int) -> Changes:
        """Random changes of images in an epoch; they follow from seed, epoch and positions in the file alone."""
        room = self.target.resize - self.target.side
        is_whole = self.changes_whole and (self.light_from is None or epoch < self.light_from)
        is_light = self.augmentation != augmentation.NONE and (room > 0 or self.flip or self.changes_whole)
        if self.seed is None or not (is_whole or is_light):
            return super().changes(chosen, epoch)
        words = draw_change_words(self.seed, epoch, len(self.reader.images.index["label"]))
        words = words[chosen if self.order is None else self.order[chosen]]
        return augmentation.make_seeds(words) if is_whole else augmentation.draw_light_changes(words, room, self.flip)

    def failure(self) -> StudyError | None:
        """The error of its reader, or None."""
        return self.reader.failure()

    def batch(self, chosen: Positions, changes: Changes | None = None) -> Batch:
        """The images at these positions, of a format in memory; a framework decodes those of others.

        Bit for bit what TensorFlow's pipeline gives, but for changes of whole images, which are TensorFlow's.
        """
        if not self.reader.images.has_pixels or self.changes_whole:
            raise TypeError("images are decoded, and changed as a whole, by the framework that trains on them")
        self.load()
        positions = chosen if self.order is None else self.order[chosen]
        pixels, side = self.loaded[0][positions], self.target.side
        if changes is None or not changes.shape[-1]:
            first = (pixels.shape[1] - side) // 2
            squares = pixels[:, first : first + side, first : first + side]
        else:
            squares = np.stack([_cut_square(*each, side) for each in zip(pixels, changes, strict=True)])
        labels = self.reader.images.index["label"][positions]
        x = squares.astype(np.float32) / np.float32(127.5) - np.float32(1)
        return x, np.eye(self.target.classes, dtype=np.float32)[labels]


def _cut_square(pixels: NDArray[np.uint8], change: NDArray[np.int64], side: int) -> NDArray[np.uint8]:
    """A square cut out of an image, mirrored or not; see `study.data.images.augmentation.draw_light_changes`."""
    row, column, mirrored = change
    square = pixels[row : row + side, column : column + side]
    return square[:, ::-1] if mirrored == augmentation.MIRRORED else square
