"""Images as bytes: what their first bytes tell, and what a framework's library does with them.

Encoded images are JPEG or, of datasets that publish pixels (MNIST, CIFAR-10), PNG, which loses nothing. All formats go
through the same `Codec`, so that they give the model the same pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from study.core.files import AnyPath

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
DEPTH = 24  # position of a PNG's bits per channel
Pixels = NDArray[np.uint8]  # (height, width, channels)


class CodecError(Exception):
    """An image or a record that a `Codec` cannot read; its text says why."""


class Codec(Protocol):
    """The functions of a framework that making and converting images need; see `study.backends.get_image_codec`.

    Decoded images are the framework's, with ``shape`` and ``numpy()``.
    """

    def encode_jpeg(self, pixels: Pixels, quality: int) -> bytes:
        """Pixels as JPEG bytes. quality: 1 to 100."""

    def encode_png(self, pixels: Pixels) -> bytes:
        """Pixels as PNG bytes."""

    def decode_jpeg(self, content: bytes, channels: int, ratio: int = 1) -> tuple[Any, bytes]:
        """The pixels of a JPEG, 1 / ``ratio`` as large, and what libjpeg printed; raises `CodecError`."""

    def decode_png(self, content: bytes, channels: int) -> Any:
        """The pixels of a PNG; raises `CodecError`."""

    def cut_square(self, pixels: Any, side: int) -> Pixels:
        """The centre of a decoded image after its shorter side is scaled to ``side`` (bilinear)."""

    def enlarge(self, values: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
        """(rows, columns, channels) enlarged to (height, width, channels) by bilinear interpolation."""

    def open_record_writer(self, path: AnyPath) -> AbstractContextManager[Callable[[bytes], None]]:
        """Context with a function that appends a record to a new TFRecord file."""

    def read_records(self, path: AnyPath, compression: str | None) -> Iterator[bytes]:
        """The records of a TFRecord file; raises `CodecError` where it is damaged. compression: GZIP, ZLIB or None."""

    def make_example(self, content: bytes, label: int) -> bytes:
        """A serialised record with ImageNet's features. label: from 1, as there."""

    def parse_features(self, record: bytes) -> Mapping[str, tuple[str, Sequence[Any]]]:
        """{feature: (kind of its list, its values)} of a ``tf.train.Example``; raises `CodecError` if it is none."""


def find_extension(content: bytes) -> str | None:
    """``jpg`` or ``png`` by the first bytes of an encoded image; None if it is neither."""
    return "jpg" if content.startswith(JPEG) else "png" if content.startswith(PNG) else None


def has_16_bits(content: bytes) -> bool:
    """True if an encoded image is a PNG of 16 bits per channel (PNG specification, 11.2.2), of which 8 are decoded."""
    return content.startswith(PNG) and content[DEPTH : DEPTH + 1] == b"\x10"
