"""Text tables as bytes: as they are, or decompressed if gzip compressed them. The content decides, not the name."""

import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.core.file_kinds import GZIP, first_bytes, is_tfrecord, is_zlib, kind_of
from study.core.files import AnyPath

COMPRESSED = "compressed with gzip"  # the one kind besides plain text that is read
BUFFER_BYTES = 1 << 20


def is_compressed(path: AnyPath) -> bool:
    """Whether gzip compressed a file, in one part or several."""
    return first_bytes(path, len(GZIP)) == GZIP


def check_kind(path: AnyPath) -> None:
    """Raise `StudyError` if a file is of a known kind that is no text table, compressed or not."""
    kind = kind_of(path)
    if kind is not None and kind.name != COMPRESSED:
        raise StudyError(f"{path}: is no text table: {kind.sentence()}")


@contextlib.contextmanager
def opened(path: AnyPath, see: Callable[[memoryview], object] | None = None) -> Iterator[IO[bytes]]:
    """The text of a file, decompressed if need be. see: gets every byte of the file as it is stored, in order.

    Raises:
        StudyError: a compressed file is cut off or damaged.
        OSError: the file cannot be read.
    """
    with open(path, "rb", buffering=0) as raw, _named_errors(path):
        compressed = is_compressed(path)
        # A larger buffer would read more of a text than is asked for, such as its first line.
        size = BUFFER_BYTES if compressed else io.DEFAULT_BUFFER_SIZE
        stored = io.BufferedReader(raw if see is None else _Seen(raw, see), size)
        yield cast(IO[bytes], gzip.GzipFile(fileobj=stored) if compressed else stored)


def tfrecord_compression(path: AnyPath) -> str:
    """TensorFlow's name of the compression of a TFRecord file: GZIP, ZLIB or an empty text.

    TensorFlow takes a compressed file that is cut off between two records for a whole one: so it is read once before.

    Raises:
        StudyError: a compressed file is cut off or damaged.
    """
    head = first_bytes(path)
    if is_zlib(head) and not is_tfrecord(head):
        _check_zlib(path)
        return "ZLIB"
    if not head.startswith(GZIP):
        return ""
    with opened(path) as handle:
        while handle.read(BUFFER_BYTES):
            pass
    return "GZIP"


def _check_zlib(path: AnyPath) -> None:
    stream = zlib.decompressobj()
    with open(path, "rb") as handle, _named_errors(path, "zlib"):
        while piece := handle.read(BUFFER_BYTES):
            stream.decompress(piece)
        if not stream.eof:
            raise EOFError("its end is missing")


def content(path: AnyPath) -> NDArray[np.uint8]:
    """The whole text of a file, as bytes; raises as `opened`."""
    if not is_compressed(path):
        return np.fromfile(path, np.uint8)
    with opened(path) as handle:
        return np.frombuffer(handle.read(), np.uint8)


@contextlib.contextmanager
def _named_errors(path: AnyPath, method: str = "gzip") -> Iterator[None]:
    """A block in which what Python's module raises for a file that is not whole becomes a `StudyError`."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StudyError(
            f"{path}: is compressed with {method}, and is cut off or damaged ({error}); "
            "fetch it again, or compress it again"
        ) from None


class _Seen(io.RawIOBase):
    """A file whose bytes are shown to a function when they are read."""

    def __init__(self, raw: io.FileIO, see: Callable[[memoryview], object]) -> None:
        self._raw, self._see = raw, see

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        number = self._raw.readinto(buffer)
        self._see(memoryview(buffer)[:number])
        return number
