"""Files of matrices: created for filling through a memory mapping, and read only if they are whole."""

import contextlib
import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.core.file_kinds import recognize_file
from study.core.files import AnyPath

FIRST = b"PK\x03\x04"  # bytes of an archive


def create_matrix(path: AnyPath, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.float32]]:
    """Create a ``.npy`` file of float32, C order, mapped for writing, with its disk space allocated.

    Without the allocation, a disk that fills up would kill the process; with it, this raises `OSError`.
    """
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    with open(path, "rb+") as handle:
        os.posix_fallocate(handle.fileno(), 0, Path(path).stat().st_size)
    return matrix


def read_matrix(path: AnyPath, mmap_mode: Literal["c"] | None = None) -> NDArray[np.float32]:
    """The float32 matrix in a ``.npy`` file of this module, read into memory or mapped.

    Raises `StudyError` if the file is not one, or not whole.
    """
    with open(path, "rb") as handle:
        try:
            shape, dtype, fortran = _read_header(handle)
            if (len(shape), dtype, fortran) != (2, np.dtype("<f4"), False):
                raise ValueError(f"it holds {dtype} of shape {shape}, not rows of float32")
            _check_size(handle.tell(), shape, dtype, os.fstat(handle.fileno()).st_size)
        except ValueError as error:
            fault: object = error
            if (kind := recognize_file(path)) is not None and "NumPy" not in kind.name:
                fault = f"it is {kind.name}"
            raise StudyError(
                f"{path}: is no whole converted matrix ({fault}); delete it, and it is converted again"
            ) from None
    return np.load(path, allow_pickle=False, mmap_mode=mmap_mode)


def read_arrays(path: AnyPath) -> dict[str, NDArray[Any]]:
    """The arrays in a ``.npz`` file of ``numpy.savez``, with their checksums verified.

    Raises `StudyError` if the file is not one, or not whole.
    """
    try:
        with open(path, "rb") as handle, zipfile.ZipFile(handle) as archive:
            if handle.seek(0) or handle.read(len(FIRST)) != FIRST:  # zipfile itself takes what stands before it
                raise ValueError("it does not begin as one")
            members = archive.infolist()
            if len({each.filename for each in members}) < len(members):
                raise ValueError("two of its arrays have one name")
            return {each.filename.removesuffix(".npy"): _read_array(archive, each) for each in members}
    except (
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        LookupError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        struct.error,
    ) as error:  # all that zipfile raises for a damaged file
        raise StudyError(f"{path}: is no whole archive of arrays ({error}); delete it to have it made again") from None


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """The array in one member of a ``.npz`` file; raises ValueError if it is not whole."""
    if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(".npy"):
        raise ValueError(f"{member.filename[:40]!r} is not an array as numpy.savez stores it")
    handle = io.BytesIO(archive.read(member))
    shape, dtype, _ = _read_header(handle)
    _check_size(handle.tell(), shape, dtype, len(handle.getvalue()))
    handle.seek(0)
    return np.load(handle, allow_pickle=False)


def _read_header(handle: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """(shape, dtype, whether in Fortran order) from the header of a ``.npy`` file; raises ValueError."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(handle)
    if version not in read:
        raise ValueError(f"its format has version {version}")
    try:
        shape, fortran, dtype = read[version](handle)
    except (tokenize.TokenError, SyntaxError) as error:  # from NumPy's attempt to read it as one of Python 2
        raise ValueError(f"its header cannot be read: {error.args[0]}") from None
    if dtype.hasobject:
        raise ValueError("it holds Python's objects")
    return shape, dtype, fortran


def _check_size(begin: int, shape: tuple[int, ...], dtype: np.dtype[Any], found: int) -> None:
    """Raise ValueError unless a file with values from byte ``begin`` on has the size of its shape.

    Checked before memory is taken for them.
    """
    expected = begin + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or found != expected:
        raise ValueError(f"it has {found} bytes, its header promises {expected}")


class RowWriter:
    """Writes a ``.npy`` file of float32, C order, row by row; a context manager.

    A full disk raises `OSError`. The header, which has the number of rows, is written at the end; its size does not
    depend on it (NumPy leaves room for a growing first axis).
    """

    def __init__(self, path: AnyPath, columns: int) -> None:
        self._handle = open(path, "wb")  # noqa: SIM115 (closed by __exit__)
        self._columns, self._rows = columns, 0
        self._write_header()
        self._begin = self._handle.tell()

    def append(self, rows: NDArray[np.float32]) -> None:
        """Append rows, (any number, columns)."""
        self._handle.write(np.ascontiguousarray(rows).data)
        self._rows += len(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._handle.seek(0)
            self._write_header()
            if self._handle.tell() != self._begin:
                raise ValueError("the header's size depends on the number of rows")
        finally:
            self._handle.close()

    def _write_header(self) -> None:
        described = {"descr": "<f4", "fortran_order": False, "shape": (self._rows, self._columns)}
        np.lib.format.write_array_header_1_0(self._handle, described)


@contextlib.contextmanager
def open_matrix(path: AnyPath) -> Iterator[np.memmap[Any, np.dtype[np.float32]]]:
    """Context with the matrix of a ``.npy`` file, mapped for changes, which are written at the end."""
    matrix = np.lib.format.open_memmap(path, mode="r+")
    yield matrix
    matrix.flush()
