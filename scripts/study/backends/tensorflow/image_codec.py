"""TensorFlow's image codecs and TFRecord files: a `study.data.images.codec.Codec`, and the same on tensors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core.errors import said
from study.core.files import AnyPath
from study.data.images.codec import CodecError, Pixels


def encode_jpeg(pixels: Pixels, quality: int) -> bytes:
    """JPEG bytes. quality: 1 to 100."""
    import tensorflow as tf

    return bytes(tf.io.encode_jpeg(pixels, quality=quality, optimize_size=False).numpy())


def encode_png(pixels: Pixels) -> bytes:
    """PNG bytes."""
    import tensorflow as tf

    return bytes(tf.io.encode_png(pixels).numpy())


def decode(content: Any, channels: int, ratio: int = 1) -> Any:
    """Pixels, a uint8 tensor (height, width, channels), of a JPEG or PNG, a scalar string tensor.

    The accurate inverse transform is chosen, since the fast one may differ between processors.
    """
    import tensorflow as tf

    return tf.io.decode_jpeg(content, channels=channels, dct_method="INTEGER_ACCURATE", ratio=ratio)


def decoded_png(content: bytes, channels: int) -> Any:
    """The pixels of a PNG; raises `CodecError`."""
    with _codec_errors():
        return decode(content, channels)


def decoded(content: bytes, channels: int, ratio: int = 1) -> tuple[Any, bytes]:
    """The pixels of a JPEG, and what libjpeg printed: TensorFlow does not pass its warnings on. Raises `CodecError`."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            with _codec_errors():
                pixels = decode(content, channels, ratio)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        printed.seek(0)
        return pixels, printed.read()


@contextmanager
def _codec_errors() -> Iterator[None]:
    """A block in which TensorFlow's errors become `CodecError`."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        raise CodecError(said(error)) from None


def fit(pixels: Any, side: int) -> Any:
    """A square of ``side`` pixels: the shorter side is scaled to it (bilinear), then the centre is cut out.

    An image of this size is returned as it is. pixels: a uint8 tensor (height, width, channels).
    """
    import tensorflow as tf

    shape, channels = tf.shape(pixels)[:2], pixels.shape[-1]

    def scaled() -> Any:
        factor = side / tf.cast(tf.reduce_min(shape), tf.float64)
        new = tf.maximum(side, tf.cast(tf.round(tf.cast(shape, tf.float64) * factor), tf.int32))
        larger = tf.image.resize(pixels, new, method="bilinear", antialias=True)
        square = tf.slice(larger, tf.concat([(new - side) // 2, [0]], 0), [side, side, channels])
        return tf.cast(tf.round(tf.clip_by_value(square, 0, 255)), tf.uint8)

    found = tf.cond(tf.reduce_all(shape == side), lambda: pixels, scaled)
    return tf.ensure_shape(found, (side, side, channels))


def square(pixels: Any, side: int) -> Pixels:
    """`fit` of one image, as an array."""
    return np.asarray(fit(pixels, side))


def enlarged(values: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Bilinear interpolation of (rows, columns, channels) to (height, width, channels)."""
    import tensorflow as tf

    return np.asarray(tf.image.resize(values, (height, width), method="bilinear"))


def centre(pixels: Any, side: int) -> Any:
    """The central squares of ``side`` pixels. pixels: uint8 (images, height, width, channels)."""
    first = (pixels.shape[1] - side) // 2
    return pixels[:, first : first + side, first : first + side, :]


def as_input(pixels: Any) -> Any:
    """float32 from -1 to 1, as TF-Slim's preprocessing scales images."""
    import tensorflow as tf

    return tf.cast(pixels, tf.float32) / 127.5 - 1


@contextmanager
def record_writer(path: AnyPath) -> Iterator[Callable[[bytes], None]]:
    """A function that appends a record to a new TFRecord file."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        yield writer.write


def records(path: AnyPath, compression: str | None) -> Iterator[bytes]:
    """The records of a TFRecord file; raises `CodecError` where it is damaged. compression: GZIP, ZLIB or None."""
    import tensorflow as tf

    with _codec_errors():
        for record in tf.data.TFRecordDataset(str(path), compression_type=compression):
            yield record.numpy()


def example(content: bytes, label: int) -> bytes:
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


def features(record: bytes) -> dict[str, tuple[str, Any]]:
    """{feature: (kind of its list, its values)} of a ``tf.train.Example``; raises `CodecError` if it is none."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        found = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise CodecError("it is no tf.train.Example") from None
    kinds = {name: found[name].WhichOneof("kind") for name in found}
    return {name: (kind, getattr(found[name], kind).value) for name, kind in kinds.items() if kind}


def encoded(records: Any) -> Any:
    """The encoded images in records of `example`; string tensors."""
    import tensorflow as tf

    return tf.io.parse_example(records, {"image/encoded": tf.io.FixedLenFeature([], tf.string)})["image/encoded"]
