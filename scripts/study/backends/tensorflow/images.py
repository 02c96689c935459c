"""Images as batches of tensors: read by Python, decoded and changed at random inside the graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.tensorflow import image_codec
from study.backends.tensorflow.augmentation import change_image, cut_squares
from study.backends.tensorflow.gathering import Gather, make_gatherer, to_tensor
from study.core.errors import StudyError
from study.data.images import augmentation
from study.data.images.conversion import decode_image
from study.data.images.formats import Format
from study.data.images.source import Images, Reader
from study.data.samples import SampleSource


@make_gatherer.register
def _gather_images(images: Images) -> Gather:
    """Make the function that gathers images; without random changes it takes the centre of each."""
    import tensorflow as tf

    shape, labels = images.target, tf.convert_to_tensor(images.reader.images.index["label"])
    order = None if images.order is None else tf.convert_to_tensor(images.order)
    pixels = make_pixel_reader(images)

    def inputs(positions: Any, changes: Any) -> Any:
        if changes is None:
            return image_codec.scale_to_input(image_codec.cut_centre(pixels(positions), shape.side))
        if not images.changes_whole:
            return image_codec.scale_to_input(cut_squares(pixels(positions), shape.side, changes))
        change_whole = lambda: _change_images(images, positions, changes)  # noqa: E731
        if images.light_from is None:
            return change_whole()
        is_whole = tf.reduce_all(changes[:, -1] == augmentation.WHOLE)
        return tf.cond(
            is_whole,
            change_whole,
            lambda: image_codec.scale_to_input(cut_squares(pixels(positions), shape.side, changes)),
        )

    def gather(chosen: Any, changes: Any = None) -> tuple[Any, Any]:
        positions = chosen if order is None else tf.gather(order, chosen)
        inputs_of_batch = tf.ensure_shape(inputs(positions, changes), (None, *images.shape))
        return inputs_of_batch, tf.one_hot(tf.gather(labels, positions), shape.classes)

    return tf.autograph.experimental.do_not_convert(gather)


def _change_images(images: Images, positions: Any, changes: Any) -> Any:
    """Read the images at these positions and change each as a whole; see `study.data.images.augmentation`."""
    import tensorflow as tf

    def change(pair: Any) -> Any:
        content, of_image = pair
        pixels = image_codec.decode_tensor(content, images.target.channels)
        return change_image(pixels, images.augmentation, images.target.side, images.flip, of_image[:2])

    result_spec = tf.TensorSpec(images.shape, tf.float32)
    return tf.map_fn(change, (_read_encoded(images, positions), changes), fn_output_signature=result_spec)


def make_pixel_reader(images: Images) -> Callable[[Any], Any]:
    """Make a function from positions in the file to pixels, uint8 (images, resize, resize, channels)."""
    import tensorflow as tf

    shape, images_format = images.target, images.reader.images
    image_shape = (shape.resize, shape.resize, shape.channels)
    if images_format.has_pixels and images.reader.remote is not None:
        return lambda positions: tf.ensure_shape(_read_stored(images, positions), (None, *image_shape))
    if images_format.has_pixels:
        images.load()
        pixels = to_tensor(images.loaded[0])
        return lambda positions: tf.gather(pixels, positions)

    def pixels_of(content: Any) -> Any:
        return image_codec.fit_square(image_codec.decode_tensor(content, shape.channels), shape.resize)

    def read(positions: Any) -> Any:
        result_spec = tf.TensorSpec(image_shape, tf.uint8)
        return tf.map_fn(pixels_of, _read_encoded(images, positions), fn_output_signature=result_spec)

    return _cache_reader(images, read) if images.caches else read


def _read_encoded(images: Images, positions: Any) -> Any:
    """Read the encoded images at these positions, a string tensor."""
    import tensorflow as tf

    records = tf.ensure_shape(_read_stored(images, positions), (None,))
    return extract_encoded(images.reader.images, records)


def extract_encoded(images: Format, records: Any) -> Any:
    """Extract the encoded images, a string tensor, from the records of `Format.read`, another."""
    return image_codec.parse_encoded(records) if images.has_examples else records


def _read_stored(images: Images, positions: Any) -> Any:
    """Read records or pixels at these positions, in this process or where TensorFlow runs the graph; a tensor."""
    import tensorflow as tf

    if images.reader.remote is None:
        return tf.numpy_function(images.reader.read, [positions], tf.string)
    kind = tf.uint8 if images.reader.images.has_pixels else tf.string
    return tf.raw_ops.PyFunc(input=[positions], token=images.reader.remote, Tout=[kind])[0]


def make_reader(images: Images) -> tuple[Callable[[NDArray[np.int64]], NDArray[Any]], Any]:
    """(A function from positions in the file to encoded images or pixels, TensorFlow's type of these)."""
    import tensorflow as tf

    if not images.reader.images.has_pixels:
        return images.reader.read, tf.string
    images.load()
    return lambda positions: images.loaded[0][positions], tf.uint8


def _cache_reader(images: Images, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a function like ``read`` that does not read a batch again whose images have all been read."""
    import tensorflow as tf

    shape, number = images.target, len(images.reader.images.index["label"])
    # Pages of memory that nothing has been written to are not taken.
    cached_pixels = np.empty((number, shape.resize, shape.resize, shape.channels), np.uint8)
    is_cached = np.zeros(number, bool)

    def remember(positions: NDArray[np.int64], pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        cached_pixels[positions], is_cached[positions] = pixels, True
        return pixels

    def read_first(positions: Any) -> Any:
        return tf.numpy_function(remember, [positions, read(positions)], tf.uint8)

    def read_again(positions: Any) -> Any:
        return tf.numpy_function(lambda chosen: cached_pixels[chosen], [positions], tf.uint8)

    def read_cached(positions: Any) -> Any:
        are_cached = tf.numpy_function(lambda chosen: is_cached[chosen].all(), [positions], tf.bool)
        pixels = tf.cond(are_cached, lambda: read_again(positions), lambda: read_first(positions))
        return tf.ensure_shape(pixels, (None, *cached_pixels.shape[1:]))

    return read_cached


def find_failure(source: SampleSource) -> BaseException | None:
    """The error of reading ``source``; None if none is known."""
    if not isinstance(source, Images) or source.failure() or source.reader.remote is not None:
        return source.failure()
    return _find_undecodable(source.reader, source.target.channels)


def _find_undecodable(reader: Reader, channels: int) -> StudyError | None:
    """The error of the first image, among those read last, that cannot be decoded; None if all can."""
    import tensorflow as tf

    for position in itertools.chain.from_iterable(reader.recent):
        where = reader.images.describe_place(int(position))
        try:
            (content,) = np.asarray(extract_encoded(reader.images, reader.images.read(np.array([position]))))
            decode_image(content, where, channels, image_codec)
        except StudyError as error:
            return error
        except (tf.errors.OpError, UnicodeDecodeError):
            return StudyError(f"{where}: is no tf.train.Example with an image; restore it, or convert it again")
    return None
