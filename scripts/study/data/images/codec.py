"""Images as bytes and as pixels: encoding, decoding, scaling, and augmentation.

All formats go through the same operations, so that they give the model the same pixels. Encoded images are JPEG or, of
datasets that publish pixels (MNIST, CIFAR-10), PNG, which loses nothing; TensorFlow's decoder takes both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
DEPTH = 24  # position of a PNG's bits per channel
Pixels = NDArray[np.uint8]  # (height, width, channels)


def extension(content: bytes) -> str | None:
    """``jpg`` or ``png`` by the first bytes of an encoded image; None if it is neither."""
    return "jpg" if content.startswith(JPEG) else "png" if content.startswith(PNG) else None


def has_16_bits(content: bytes) -> bool:
    """Whether an encoded image is a PNG of 16 bits per channel (PNG specification, 11.2.2), of which 8 are decoded."""
    return content.startswith(PNG) and content[DEPTH : DEPTH + 1] == b"\x10"


def encode_jpeg(pixels: Pixels, quality: int) -> bytes:
    """JPEG bytes. quality: 1 to 100."""
    import tensorflow as tf

    return bytes(tf.io.encode_jpeg(pixels, quality=quality, optimize_size=False).numpy())


def encode_png(pixels: Pixels) -> bytes:
    """PNG bytes."""
    import tensorflow as tf

    return bytes(tf.io.encode_png(pixels).numpy())


def decode(content: Any, channels: int) -> Any:
    """Pixels, a uint8 tensor (height, width, channels), of an encoded image, a scalar string tensor.

    The accurate inverse transform is chosen, since the fast one may differ between processors.
    """
    import tensorflow as tf

    return tf.io.decode_jpeg(content, channels=channels, dct_method="INTEGER_ACCURATE")


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


def centre(pixels: Any, side: int) -> Any:
    """The central squares of ``side`` pixels. pixels: uint8 (images, height, width, channels)."""
    first = (pixels.shape[1] - side) // 2
    return pixels[:, first : first + side, first : first + side, :]


def as_input(pixels: Any) -> Any:
    """float32 from -1 to 1, as TF-Slim's preprocessing scales images."""
    import tensorflow as tf

    return tf.cast(pixels, tf.float32) / 127.5 - 1
