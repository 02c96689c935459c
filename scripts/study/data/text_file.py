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
from study.core.file_kinds import GZIP, is_tfrecord, is_zlib, read_first_bytes, recognize_file
from study.core.files import AnyPath

COMPRESSED = "compressed with gzip"  # the one kind besides plain text that is read
BUFFER_BYTES = 1 << 20


def is_compressed(path: AnyPath) -> bool:
    """True if a file is compressed with gzip, in one part or several."""
    return read_first_bytes(path, len(GZIP)) == GZIP


def check_kind(path: AnyPath) -> None:
    """Raise `StudyError` if a file is known to be no text table, compressed or not."""
    kind = recognize_file(path)
    if kind is not None and kind.name != COMPRESSED:
        raise StudyError(f"{path}: is no text table: {kind.to_sentence()}")


@contextlib.contextmanager
def open_text(path: AnyPath, see: Callable[[memoryview], object] | None = None) -> Iterator[IO[bytes]]:
    """Open a text file, decompressed if need be. see: gets every stored byte of the file, in order.

    Raises:
        StudyError: a compressed file is cut off or damaged.
        OSError: the file cannot be read.
    """
    with open(path, "rb", buffering=0) as raw, _name_errors(path):
        compressed = is_compressed(path)
        # A larger buffer would read more of a text than is asked for, such as its first line.
        size = BUFFER_BYTES if compressed else io.DEFAULT_BUFFER_SIZE
        stored = io.BufferedReader(raw if see is None else _WatchedFile(raw, see), size)
        yield cast(IO[bytes], gzip.GzipFile(fileobj=stored) if compressed else stored)


def find_tfrecord_compression(path: AnyPath) -> str:
    """TensorFlow's name of the compression of a TFRecord file: GZIP, ZLIB or an empty text.

    TensorFlow takes a compressed file that is cut off between two records for a whole one: so it is read once before.

    Raises:
        StudyError: a compressed file is cut off or damaged.
    """
    head = read_first_bytes(path)
    if is_zlib(head) and not is_tfrecord(head):
        _check_zlib(path)
        return "ZLIB"
    if not head.startswith(GZIP):
        return ""
    with open_text(path) as handle:
        while handle.read(BUFFER_BYTES):
            pass
    return "GZIP"


def _check_zlib(path: AnyPath) -> None:
    """Raise `StudyError` if a file compressed with zlib is cut off or damaged."""
    stream = zlib.decompressobj()
    with open(path, "rb") as handle, _name_errors(path, "zlib"):
        while piece := handle.read(BUFFER_BYTES):
            stream.decompress(piece)
        if not stream.eof:
            raise EOFError("its end is missing")


def read_content(path: AnyPath) -> NDArray[np.uint8]:
    """The whole text of a file as bytes; raises as `open_text`."""
    if not is_compressed(path):
        return np.fromfile(path, np.uint8)
    with open_text(path) as handle:
        return np.frombuffer(handle.read(), np.uint8)


@contextlib.contextmanager
def _name_errors(path: AnyPath, method: str = "gzip") -> Iterator[None]:
    """Context in which errors about a damaged compressed file become a `StudyError` that names it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StudyError(
            f"{path}: is compressed with {method}, and is cut off or damaged ({error}); "
            "fetch it again, or compress it again"
        ) from None


class _WatchedFile(io.RawIOBase):
    """A file that shows a function all bytes that are read."""

    def __init__(self, raw: io.FileIO, see: Callable[[memoryview], object]) -> None:
        self._raw, self._see = raw, see

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        number = self._raw.readinto(buffer)
        self._see(memoryview(buffer)[:number])
        return number
