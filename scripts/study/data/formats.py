"""File formats that can store a matrix of numbers, each written and read with its own library.

All store a float32 matrix and return it bit for bit. Parquet and Feather store columns, the others rows or whole
arrays; with 60,000 columns this decides the speed.
"""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError, extract_message
from study.core.file_kinds import describe_file
from study.core.files import AnyPath
from study.data.lmdb_file import open_whole

LMDB_ENTRY_BYTES = 64  # at most, per row in addition to its values: key, headers
LMDB_ROOM = 2  # pages of the tree are at least half full
AT_ONCE_BYTES = 1 << 24  # of rows that are processed together

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Format:
    """How a format is written and read.

    write: from (matrix, path) to a file. read: from path to the matrix. module: the library's module.
    """

    write: Callable[[Matrix, AnyPath], None]
    read: Callable[[AnyPath], Matrix]
    module: str


def _find_backend_format(module: str) -> Format:
    """The format of a framework's module, whose functions ``write`` and ``read`` are imported when called."""

    def call(function: str, *arguments: Any) -> Any:
        return getattr(importlib.import_module(module), function)(*arguments)

    return Format(functools.partial(call, "write"), functools.partial(call, "read"), module)


def _write_npy(matrix: Matrix, path: AnyPath) -> None:
    with open(path, "wb") as handle:
        np.save(handle, matrix)


def _read_npy(path: AnyPath) -> Matrix:
    with open(path, "rb") as handle:  # numpy.load would take a zip archive, too
        return np.lib.format.read_array(handle, allow_pickle=False)


def _write_hdf5(matrix: Matrix, path: AnyPath) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("matrix", data=matrix)


def _read_hdf5(path: AnyPath) -> Matrix:
    import h5py

    with h5py.File(path, "r") as file:
        return file["matrix"][()]


def _to_arrow(matrix: Matrix) -> Any:
    """An Arrow table with one column per column of the matrix."""
    import pyarrow as pa

    names = [f"c{column}" for column in range(matrix.shape[1])]
    return pa.table([pa.array(column) for column in np.ascontiguousarray(matrix.T)], names=names)


def _from_arrow(table: Any) -> Matrix:
    """The float32 matrix of an Arrow table's columns."""
    matrix = np.empty((table.num_rows, table.num_columns), dtype=np.float32)
    for index, column in enumerate(table.columns):
        matrix[:, index] = column.to_numpy()
    return matrix


def _write_parquet(matrix: Matrix, path: AnyPath) -> None:
    from pyarrow import parquet

    parquet.write_table(_to_arrow(matrix), path)


def _read_parquet(path: AnyPath) -> Matrix:
    from pyarrow import parquet

    return _from_arrow(parquet.read_table(path))


def _write_feather(matrix: Matrix, path: AnyPath) -> None:
    from pyarrow import feather

    feather.write_feather(_to_arrow(matrix), str(path))


def _read_feather(path: AnyPath) -> Matrix:
    from pyarrow import feather

    return _from_arrow(feather.read_table(str(path)))


def _write_lmdb(matrix: Matrix, path: AnyPath) -> None:
    import lmdb

    rows, columns = matrix.shape
    room = LMDB_ROOM * rows * (columns * matrix.itemsize + LMDB_ENTRY_BYTES) + AT_ONCE_BYTES
    with lmdb.open(str(path), subdir=False, lock=False, map_size=room) as environment:
        for first in range(0, rows, count_rows_at_once(columns)):
            with environment.begin(write=True) as transaction:
                for row in range(first, min(first + count_rows_at_once(columns), rows)):
                    transaction.put(b"%010d" % row, matrix[row].tobytes(), append=True)


def _read_lmdb(path: AnyPath) -> Matrix:
    with (
        open_whole(path) as environment,
        environment.begin(buffers=True) as transaction,
    ):
        rows = transaction.stat()["entries"]
        matrix = None
        for index, (key, value) in enumerate(transaction.cursor()):
            row = np.frombuffer(value, dtype=np.float32)
            if matrix is None:
                matrix = np.empty((rows, len(row)), dtype=np.float32)
            if key != b"%010d" % index or len(row) != matrix.shape[1]:
                raise ValueError(f"entry {index} has the key {bytes(key)[:40]!r} and {len(row)} values")
            matrix[index] = row
    if matrix is None:
        raise ValueError("there is no row")
    return matrix


def count_rows_at_once(columns: int) -> int:
    """Number of rows of a matrix that are processed together."""
    return max(1, AT_ONCE_BYTES // (columns * np.dtype(np.float32).itemsize))


FORMATS = {
    "npy": Format(_write_npy, _read_npy, "numpy"),
    "hdf5": Format(_write_hdf5, _read_hdf5, "h5py"),
    "parquet": Format(_write_parquet, _read_parquet, "pyarrow.parquet"),
    "feather": Format(_write_feather, _read_feather, "pyarrow.feather"),
    "tfrecord": _find_backend_format("study.backends.tensorflow.matrix_records"),
    "lmdb": Format(_write_lmdb, _read_lmdb, "lmdb"),
}


def read_matrix(name: str, path: AnyPath) -> Matrix:
    """The matrix in a file of the format ``name``; raises `StudyError` if it cannot be read."""
    try:
        return FORMATS[name].read(path)
    except MemoryError:
        raise
    except Exception as error:  # each library has its own errors
        why = extract_message(error) or "it has no rows"
        raise StudyError(f"{path}: cannot be read as {name}: {why}; {describe_file(path)}") from None
