"""File formats that a matrix of numbers can be kept in, each through its own library, as its users would.

All hold a float32 matrix and give it back bit for bit. Parquet and Feather are formats of columns, the others of rows
or of whole arrays; with 60,000 columns that decides.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from study.core.errors import StudyError

LMDB_ENTRY_BYTES = 64  # of a row beside its values, at most: key, headers
LMDB_ROOM = 2  # pages of the tree are at least half full
AT_ONCE_BYTES = 1 << 24  # of rows that are handled together


@dataclass(frozen=True)
class Format:
    """How a format is written and read.

    write: from (matrix, path) to a file. read: from path to the matrix. module: of its library.
    """

    write: Callable
    read: Callable
    module: str


def _write_npy(matrix, path):
    with open(path, "wb") as handle:
        np.save(handle, matrix)


def _read_npy(path):
    return np.load(path, allow_pickle=False)


def _write_hdf5(matrix, path):
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("matrix", data=matrix)


def _read_hdf5(path):
    import h5py

    with h5py.File(path, "r") as file:
        return file["matrix"][()]


def _columns(matrix):
    """An Arrow table with a column a column."""
    import pyarrow as pa

    names = [f"c{column}" for column in range(matrix.shape[1])]
    return pa.table([pa.array(column) for column in np.ascontiguousarray(matrix.T)], names=names)


def _matrix(table):
    matrix = np.empty((table.num_rows, table.num_columns), dtype=np.float32)
    for index, column in enumerate(table.columns):
        matrix[:, index] = column.to_numpy()
    return matrix


def _write_parquet(matrix, path):
    from pyarrow import parquet

    parquet.write_table(_columns(matrix), path)


def _read_parquet(path):
    from pyarrow import parquet

    return _matrix(parquet.read_table(path))


def _write_feather(matrix, path):
    from pyarrow import feather

    feather.write_feather(_columns(matrix), str(path))


def _read_feather(path):
    from pyarrow import feather

    return _matrix(feather.read_table(str(path)))


def _write_tfrecord(matrix, path):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in matrix:
            values = tf.train.Feature(float_list=tf.train.FloatList(value=row))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"row": values})).SerializeToString())


def _read_tfrecord(path):
    import tensorflow as tf

    first = tf.train.Example.FromString(next(iter(tf.data.TFRecordDataset(str(path)))).numpy())
    row = tf.io.FixedLenFeature([len(first.features.feature["row"].float_list.value)], tf.float32)
    records = tf.data.TFRecordDataset(str(path)).batch(_rows_at_once(row.shape[0]))
    parsed = records.map(lambda batch: tf.io.parse_example(batch, {"row": row})["row"])
    return np.concatenate([batch.numpy() for batch in parsed])


def _write_lmdb(matrix, path):
    import lmdb

    rows, columns = matrix.shape
    room = LMDB_ROOM * rows * (columns * matrix.itemsize + LMDB_ENTRY_BYTES) + AT_ONCE_BYTES
    with lmdb.open(str(path), subdir=False, lock=False, map_size=room) as environment:
        for first in range(0, rows, _rows_at_once(columns)):
            with environment.begin(write=True) as transaction:
                for row in range(first, min(first + _rows_at_once(columns), rows)):
                    transaction.put(b"%010d" % row, matrix[row].tobytes(), append=True)


def _read_lmdb(path):
    import lmdb

    with (
        lmdb.open(str(path), subdir=False, lock=False, readonly=True) as environment,
        environment.begin(buffers=True) as transaction,
    ):
        rows = transaction.stat()["entries"]
        matrix = None
        for index, (_, value) in enumerate(transaction.cursor()):
            row = np.frombuffer(value, dtype=np.float32)
            if matrix is None:
                matrix = np.empty((rows, len(row)), dtype=np.float32)
            matrix[index] = row
    return matrix


def _rows_at_once(columns):
    return max(1, AT_ONCE_BYTES // (columns * np.dtype(np.float32).itemsize))


FORMATS = {
    "npy": Format(_write_npy, _read_npy, "numpy"),
    "hdf5": Format(_write_hdf5, _read_hdf5, "h5py"),
    "parquet": Format(_write_parquet, _read_parquet, "pyarrow.parquet"),
    "feather": Format(_write_feather, _read_feather, "pyarrow.feather"),
    "tfrecord": Format(_write_tfrecord, _read_tfrecord, "tensorflow"),
    "lmdb": Format(_write_lmdb, _read_lmdb, "lmdb"),
}


def import_for(name):
    """Import a format's library, which is no part of loading."""
    importlib.import_module(FORMATS[name].module)


def read(name, path):
    """The matrix that a file of a format holds; raises `StudyError` where its library cannot read it."""
    try:
        return FORMATS[name].read(path)
    except MemoryError:
        raise
    except Exception as error:  # each library has errors of its own
        raise StudyError(f"{path}: cannot be read as {name}: {error}") from None
