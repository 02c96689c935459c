"""Images as batches of tensors: read by Python, decoded and changed at random inside the graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.tensorflow import image_codec
from study.backends.tensorflow.augmentation import changed, cut_out
from study.backends.tensorflow.gathering import Gather, gatherer, tensor
from study.core.errors import StudyError
from study.data.images import augmentation
from study.data.images.conversion import decoded
from study.data.images.formats import Format
from study.data.images.source import Images, Reader
from study.data.samples import SampleSource


@gatherer.register
def _of_images(images: Images) -> Gather:
    """Without random changes the centre of each image is taken."""
    import tensorflow as tf

    shape, labels = images.target, tf.convert_to_tensor(images.reader.images.index["label"])
    order = None if images.order is None else tf.convert_to_tensor(images.order)
    pixels = stored(images)

    def inputs(positions: Any, changes: Any) -> Any:
        if changes is None:
            return image_codec.as_input(image_codec.centre(pixels(positions), shape.side))
        if not images.changes_whole:
            return image_codec.as_input(cut_out(pixels(positions), shape.side, changes))
        whole = lambda: _changed(images, positions, changes)  # noqa: E731
        if images.light_from is None:
            return whole()
        is_whole = tf.reduce_all(changes[:, -1] == augmentation.WHOLE)
        return tf.cond(is_whole, whole, lambda: image_codec.as_input(cut_out(pixels(positions), shape.side, changes)))

    def gather(chosen: Any, changes: Any = None) -> tuple[Any, Any]:
        positions = chosen if order is None else tf.gather(order, chosen)
        found = tf.ensure_shape(inputs(positions, changes), (None, *images.shape))
        return found, tf.one_hot(tf.gather(labels, positions), shape.classes)

    return tf.autograph.experimental.do_not_convert(gather)


def _changed(images: Images, positions: Any, changes: Any) -> Any:
    """The images at these positions, changed as a whole; see `study.data.images.augmentation`."""
    import tensorflow as tf

    def change(pair: Any) -> Any:
        content, of_image = pair
        pixels = image_codec.decode(content, images.target.channels)
        return changed(pixels, images.augmentation, images.target.side, images.flip, of_image[:2])

    found = tf.TensorSpec(images.shape, tf.float32)
    return tf.map_fn(change, (_encoded(images, positions), changes), fn_output_signature=found)


def stored(images: Images) -> Callable[[Any], Any]:
    """A function from positions in the file to pixels, uint8 (images, resize, resize, channels)."""
    import tensorflow as tf

    shape, stores = images.target, images.reader.images
    whole = (shape.resize, shape.resize, shape.channels)
    if stores.has_pixels and images.reader.remote is not None:
        return lambda positions: tf.ensure_shape(_read(images, positions), (None, *whole))
    if stores.has_pixels:
        images.load()
        pixels = tensor(images.loaded[0])
        return lambda positions: tf.gather(pixels, positions)

    def pixels_of(content: Any) -> Any:
        return image_codec.fit(image_codec.decode(content, shape.channels), shape.resize)

    def read(positions: Any) -> Any:
        found = tf.TensorSpec(whole, tf.uint8)
        return tf.map_fn(pixels_of, _encoded(images, positions), fn_output_signature=found)

    return _remembering(images, read) if images.caches else read


def _encoded(images: Images, positions: Any) -> Any:
    """The encoded images at these positions, a string tensor."""
    import tensorflow as tf

    records = tf.ensure_shape(_read(images, positions), (None,))
    return encoded(images.reader.images, records)


def encoded(images: Format, records: Any) -> Any:
    """The encoded images, a string tensor, in what `Format.read` gave, another."""
    return image_codec.encoded(records) if images.has_examples else records


def _read(images: Images, positions: Any) -> Any:
    """What is read at these positions, by this process or by the one in which TensorFlow runs it; a tensor."""
    import tensorflow as tf

    if images.reader.remote is None:
        return tf.numpy_function(images.reader.read, [positions], tf.string)
    kind = tf.uint8 if images.reader.images.has_pixels else tf.string
    return tf.raw_ops.PyFunc(input=[positions], token=images.reader.remote, Tout=[kind])[0]


def reading(images: Images) -> tuple[Callable[[NDArray[np.int64]], NDArray[Any]], Any]:
    """(a function from positions in the file to what is read there, TensorFlow's type of that).

    Encoded images, or pixels of a format in memory.
    """
    import tensorflow as tf

    if not images.reader.images.has_pixels:
        return images.reader.read, tf.string
    images.load()
    return lambda positions: images.loaded[0][positions], tf.uint8


def _remembering(images: Images, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``read``, which is not called again for a batch whose images have all been read."""
    import tensorflow as tf

    shape, number = images.target, len(images.reader.images.index["label"])
    # Pages of memory that nothing has been written to are not taken.
    kept = np.empty((number, shape.resize, shape.resize, shape.channels), np.uint8)
    known = np.zeros(number, bool)

    def remember(positions: NDArray[np.int64], pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
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


def failure(source: SampleSource) -> BaseException | None:
    """What has gone wrong with reading ``source``; None if nothing has that is known."""
    if not isinstance(source, Images) or source.failure() or source.reader.remote is not None:
        return source.failure()
    return _undecodable(source.reader, source.target.channels)


def _undecodable(reader: Reader, channels: int) -> StudyError | None:
    """The error of the first image among those read last that cannot be decoded."""
    import tensorflow as tf

    for position in itertools.chain.from_iterable(reader.recent):
        where = reader.images.where(int(position))
        try:
            (content,) = np.asarray(encoded(reader.images, reader.images.read(np.array([position]))))
            decoded(content, where, channels, image_codec)
        except StudyError as error:
            return error
        except (tf.errors.OpError, UnicodeDecodeError):
            return StudyError(f"{where}: is no tf.train.Example with an image; restore it, or convert it again")
    return None
