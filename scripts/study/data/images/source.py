"""Images as samples: read, decoded and changed at random one batch at a time, while the model trains."""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.data.images import augmentation, codec
from study.data.images.conversion import decoded
from study.data.images.formats import Format
from study.data.samples import Can, SampleSource, tensor

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
    """Reads from one format; keeps the error that TensorFlow would wrap into one of its own.

    remote: the name of a reader that is registered with TensorFlow where the samples are used, if that is in another
    process; None for this object itself.
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

    def undecodable(self, channels: int) -> StudyError | None:
        """The error of the first image among those read last that cannot be decoded."""
        for position in itertools.chain.from_iterable(self.recent):
            where = self.images.where(int(position))
            try:
                (content,) = np.asarray(self.images.encoded(self.images.read(np.array([position]))))
                decoded(content, where, channels)
            except StudyError as error:
                return error
            except wrapped():
                return StudyError(f"{where}: is no tf.train.Example with an image; restore it, or convert it again")
        return None


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
    _pixels: list[Any] = field(default_factory=list, compare=False)  # of a format in memory, once it is loaded

    @property
    def shape(self) -> tuple[int, ...]:
        """(side, side, channels)."""
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
        """Its samples are made while the model trains."""
        return True

    def __len__(self) -> int:
        return len(self.reader.images.index["label"]) if self.order is None else len(self.order)

    def load(self) -> None:
        """Read the pixels of a format in memory; nothing for others."""
        if self.reader.images.has_pixels and not self._pixels:
            self._pixels.append(self.reader.images.pixels())

    def rows(self, chosen: np.ndarray | slice) -> Images:
        """The samples at the positions or slice ``chosen``."""
        order = np.arange(len(self.reader.images.index["label"])) if self.order is None else self.order
        return replace(self, order=order[chosen])

    def read_by(self, reader: Reader) -> Images:
        """The same images, read by another reader of their format."""
        return replace(self, reader=reader)

    def reading(self) -> tuple[Callable[[np.ndarray], np.ndarray], Any]:
        """(a function from positions in the file to what is read there, TensorFlow's type of that).

        Encoded images, or pixels of a format in memory.
        """
        import tensorflow as tf

        if not self.reader.images.has_pixels:
            return self.reader.read, tf.string
        self.load()
        return lambda positions: self._pixels[0][positions], tf.uint8

    def _read(self, positions: Any) -> Any:
        """What is read at these positions, by this process or by the one in which TensorFlow runs it; a tensor."""
        import tensorflow as tf

        if self.reader.remote is None:
            return tf.numpy_function(self.reader.read, [positions], tf.string)
        kind = tf.uint8 if self.reader.images.has_pixels else tf.string
        return tf.raw_ops.PyFunc(input=[positions], token=self.reader.remote, Tout=[kind])[0]

    def cached(self) -> Images:
        """The same images, each of which is read and decoded once; random changes are made anew."""
        return replace(self, caches=True)

    def changing(self, seed: int, flip: bool) -> Images:
        """The same images, in training cut out and mirrored at random. seed: equal on all ranks of a run."""
        return replace(self, seed=seed, flip=flip)

    def augmented(self, kind: str, light_from: int | None = None) -> Images:
        """The same images with another augmentation in training."""
        return replace(self, augmentation=kind, light_from=light_from)

    def gatherer(self) -> Callable[[Any], tuple[Any, Any]]:
        """A function from positions, a tensor, to a batch (x, y) of tensors; without augmentation."""
        gather = self._gatherer(is_training=False)
        return lambda chosen: gather(chosen, None)

    def gatherer_by_epoch(self) -> Callable[[Any, Any], tuple[Any, Any]]:
        """The same from positions and the epoch, with the augmentation of that epoch."""
        return self._gatherer(is_training=self.seed is not None and self.augmentation != augmentation.NONE)

    def _gatherer(self, is_training: bool) -> Callable[[Any, Any], tuple[Any, Any]]:
        import tensorflow as tf

        shape, labels = self.target, tf.convert_to_tensor(self.reader.images.index["label"])
        order = None if self.order is None else tf.convert_to_tensor(self.order)
        inputs = self._inputs(is_training)

        def gather(chosen: Any, epoch: Any) -> tuple[Any, Any]:
            positions = chosen if order is None else tf.gather(order, chosen)
            pixels = tf.ensure_shape(inputs(positions, epoch), (None, *self.shape))
            return pixels, tf.one_hot(tf.gather(labels, positions), shape.classes)

        return tf.autograph.experimental.do_not_convert(gather)

    def _inputs(self, is_training: bool) -> Callable[[Any, Any], Any]:
        """A function from positions in the file and the epoch to what the model gets, float32."""
        import tensorflow as tf

        side, stored = self.target.side, self.stored()

        def light(positions: Any, epoch: Any) -> Any:
            cut = codec.augmented(stored(positions), side, self.flip, self.seed or 0, epoch, positions)
            return codec.as_input(cut)

        if not is_training:
            return lambda positions, epoch: codec.as_input(codec.centre(stored(positions), side))
        if self.augmentation == augmentation.LIGHT:
            return light
        until = self.light_from
        if until is None:
            return self._changed
        return lambda positions, epoch: tf.cond(
            epoch < until, lambda: self._changed(positions, epoch), lambda: light(positions, epoch)
        )

    def _changed(self, positions: Any, epoch: Any) -> Any:
        """The images at these positions, changed as a whole; see `study.data.images.augmentation`."""
        import tensorflow as tf

        def change(pair: Any) -> Any:
            content, position = pair
            pixels = codec.decode(content, self.target.channels)
            seed = codec.seed_of(self.seed or 0, epoch, position)
            return augmentation.changed(pixels, self.augmentation, self.target.side, self.flip, seed)

        return tf.map_fn(
            change, (self._encoded(positions), positions), fn_output_signature=tf.TensorSpec(self.shape, tf.float32)
        )

    def _encoded(self, positions: Any) -> Any:
        """The encoded images at these positions, a string tensor."""
        import tensorflow as tf

        records = tf.ensure_shape(self._read(positions), (None,))
        return self.reader.images.encoded(records)

    def stored(self) -> Callable[[Any], Any]:
        """A function from positions in the file to pixels, uint8 (images, resize, resize, channels)."""
        import tensorflow as tf

        shape, images = self.target, self.reader.images
        if images.has_pixels and self.reader.remote is not None:
            whole = (None, shape.resize, shape.resize, shape.channels)
            return lambda positions: tf.ensure_shape(self._read(positions), whole)
        if images.has_pixels:
            self.load()
            pixels = tensor(self._pixels[0])
            return lambda positions: tf.gather(pixels, positions)

        def pixels_of(content: Any) -> Any:
            return codec.fit(codec.decode(content, shape.channels), shape.resize)

        def read(positions: Any) -> Any:
            found = tf.TensorSpec((shape.resize, shape.resize, shape.channels), tf.uint8)
            return tf.map_fn(pixels_of, self._encoded(positions), fn_output_signature=found)

        return self._remembering(read) if self.caches else read

    def _remembering(self, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """``read``, which is not called again for a batch whose images have all been read."""
        import tensorflow as tf

        shape, number = self.target, len(self.reader.images.index["label"])
        # Pages of memory that nothing has been written to are not taken.
        kept = np.empty((number, shape.resize, shape.resize, shape.channels), np.uint8)
        known = np.zeros(number, bool)

        def remember(positions: np.ndarray, pixels: np.ndarray) -> np.ndarray:
            kept[positions], known[positions] = pixels, True
            return pixels

        def first(positions: Any) -> Any:
            return tf.numpy_function(remember, [positions, read(positions)], tf.uint8)

        def again(positions: Any) -> Any:
            return tf.numpy_function(lambda chosen: kept[chosen], [positions], tf.uint8)

        def pixels(positions: Any) -> Any:
            are_known = tf.numpy_function(lambda chosen: known[chosen].all(), [positions], tf.bool)
            found = tf.cond(are_known, lambda: again(positions), lambda: first(positions))
            return tf.ensure_shape(found, (None, *kept.shape[1:]))

        return pixels


def wrapped() -> tuple[type[Exception], ...]:
    """What TensorFlow raises for a record that it cannot read; the second if its message has bytes of the record."""
    import tensorflow as tf

    return tf.errors.OpError, UnicodeDecodeError


@contextlib.contextmanager
def errors_named(sources: list[Images]) -> Iterator[None]:
    """Within the block an image that cannot be read or decoded is a `StudyError` with its file and record.

    TensorFlow's own message has only the operation.
    """
    try:
        yield
    except wrapped():
        for source in sources:
            found = source.reader.error or source.reader.undecodable(source.target.channels)
            if found:
                raise found from None
        raise
