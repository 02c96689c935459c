"""Create a file for a matrix that is filled through a memory mapping."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from study.core.files import AnyPath


def create(path: AnyPath, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.float32]]:
    """A new ``.npy`` file of float32, C order, mapped for writing; its disk space is allocated.

    Without the allocation, a disk that fills up would kill the process; with it, this raises `OSError`.
    """
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    with open(path, "rb+") as handle:
        os.posix_fallocate(handle.fileno(), 0, Path(path).stat().st_size)
    return matrix


class Rows:
    """A new ``.npy`` file of float32, C order, whose rows are appended; a context manager.

    A full disk raises `OSError`. The header, which has the number of rows, is written at the end; its size does not
    depend on it (NumPy leaves room for a growing first axis).
    """

    def __init__(self, path: AnyPath, columns: int) -> None:
        self._handle = open(path, "wb")  # noqa: SIM115 (closed by __exit__)
        self._columns, self._rows = columns, 0
        self._write_header()
        self._begin = self._handle.tell()

    def append(self, rows: NDArray[np.float32]) -> None:
        """Append rows, of (any number, columns)."""
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
def opened(path: AnyPath) -> Iterator[np.memmap[Any, np.dtype[np.float32]]]:
    """The matrix in a ``.npy`` file, mapped for changes, which are written at the end."""
    matrix = np.lib.format.open_memmap(path, mode="r+")
    yield matrix
    matrix.flush()
