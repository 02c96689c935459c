"""TensorFlow's image codecs and TFRecord files: a `study.data.images.codec.Codec`, and the same on tensors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core.errors import extract_message
from study.core.files import AnyPath
from study.data.images.codec import CodecError, Pixels


def encode_jpeg(pixels: Pixels, quality: int) -> bytes:
    """Encode pixels as JPEG. quality: 1 to 100."""
    import tensorflow as tf

    return bytes(tf.io.encode_jpeg(pixels, quality=quality, optimize_size=False).numpy())


def encode_png(pixels: Pixels) -> bytes:
    """Encode pixels as PNG."""
    import tensorflow as tf

    return bytes(tf.io.encode_png(pixels).numpy())


def decode_tensor(content: Any, channels: int, ratio: int = 1) -> Any:
    """Decode a JPEG or PNG, a scalar string tensor, to pixels, a uint8 tensor (height, width, channels).

    The accurate inverse transform is chosen, since the fast one may differ between processors.
    """
    import tensorflow as tf

    return tf.io.decode_jpeg(content, channels=channels, dct_method="INTEGER_ACCURATE", ratio=ratio)


def decode_png(content: bytes, channels: int) -> Any:
    """The pixels of a PNG; raises `CodecError`."""
    with _raise_codec_errors():
        return decode_tensor(content, channels)


def decode_jpeg(content: bytes, channels: int, ratio: int = 1) -> tuple[Any, bytes]:
    """The pixels of a JPEG, and what libjpeg printed: TensorFlow does not pass its warnings on. Raises `CodecError`."""
    stderr_copy = os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            with _raise_codec_errors():
                pixels = decode_tensor(content, channels, ratio)
        finally:
            os.dup2(stderr_copy, 2)
            os.close(stderr_copy)
        printed.seek(0)
        return pixels, printed.read()


@contextmanager
def _raise_codec_errors() -> Iterator[None]:
    """Raise TensorFlow's errors in the block as `CodecError`."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        raise CodecError(extract_message(error)) from None


def fit_square(pixels: Any, side: int) -> Any:
    """Scale the shorter side of an image to ``side`` pixels (bilinear), and cut out the central square.

    An image of this size is returned as it is. pixels: a uint8 tensor (height, width, channels).
    """
    import tensorflow as tf

    shape, channels = tf.shape(pixels)[:2], pixels.shape[-1]

    def scale() -> Any:
        factor = side / tf.cast(tf.reduce_min(shape), tf.float64)
        new = tf.maximum(side, tf.cast(tf.round(tf.cast(shape, tf.float64) * factor), tf.int32))
        larger = tf.image.resize(pixels, new, method="bilinear", antialias=True)
        square = tf.slice(larger, tf.concat([(new - side) // 2, [0]], 0), [side, side, channels])
        return tf.cast(tf.round(tf.clip_by_value(square, 0, 255)), tf.uint8)

    square = tf.cond(tf.reduce_all(shape == side), lambda: pixels, scale)
    return tf.ensure_shape(square, (side, side, channels))


def cut_square(pixels: Any, side: int) -> Pixels:
    """`fit_square` of one image, as an array."""
    return np.asarray(fit_square(pixels, side))


def enlarge(values: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Bilinear interpolation of (rows, columns, channels) to (height, width, channels)."""
    import tensorflow as tf

    return np.asarray(tf.image.resize(values, (height, width), method="bilinear"))


def cut_centre(pixels: Any, side: int) -> Any:
    """Cut the central squares of ``side`` pixels out of images, uint8 (images, height, width, channels)."""
    first = (pixels.shape[1] - side) // 2
    return pixels[:, first : first + side, first : first + side, :]


def scale_to_input(pixels: Any) -> Any:
    """Scale pixels to float32 from -1 to 1, as TF-Slim's preprocessing does."""
    import tensorflow as tf

    return tf.cast(pixels, tf.float32) / 127.5 - 1


@contextmanager
def open_record_writer(path: AnyPath) -> Iterator[Callable[[bytes], None]]:
    """A function that appends a record to a new TFRecord file."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        yield writer.write


def read_records(path: AnyPath, compression: str | None) -> Iterator[bytes]:
    """The records of a TFRecord file; raises `CodecError` where it is damaged. compression: GZIP, ZLIB or None."""
    import tensorflow as tf

    with _raise_codec_errors():
        for record in tf.data.TFRecordDataset(str(path), compression_type=compression):
            yield record.numpy()


def make_example(content: bytes, label: int) -> bytes:
    """A serialised record with ImageNet's features. label: from 1, as there."""
    import tensorflow as tf

    return bytes(
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[content])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
            )
        ).SerializeToString(deterministic=True)
    )


def parse_features(record: bytes) -> dict[str, tuple[str, Any]]:
    """{feature: (kind of its list, its values)} of a ``tf.train.Example``; raises `CodecError` if it is none."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        by_name = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise CodecError("it is no tf.train.Example") from None
    kinds = {name: by_name[name].WhichOneof("kind") for name in by_name}
    return {name: (kind, getattr(by_name[name], kind).value) for name, kind in kinds.items() if kind}


def parse_encoded(records: Any) -> Any:
    """Parse records of `make_example`; returns the encoded images, string tensors."""
    import tensorflow as tf

    return tf.io.parse_example(records, {"image/encoded": tf.io.FixedLenFeature([], tf.string)})["image/encoded"]
