"""A float32 matrix in TensorFlow's TFRecord file, a row per record; a format of `study.data.formats`."""

import numpy as np
import tensorflow as tf

from study.core.files import AnyPath
from study.data.formats import Matrix, count_rows_at_once


def write(matrix: Matrix, path: AnyPath) -> None:
    """Write the rows of a matrix to a file."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in matrix:
            values = tf.train.Feature(float_list=tf.train.FloatList(value=row))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"row": values})).SerializeToString())


def read(path: AnyPath) -> Matrix:
    """The matrix in a file; raises what TensorFlow raises."""
    first = tf.train.Example.FromString(next(iter(tf.data.TFRecordDataset(str(path)))).numpy())
    row = tf.io.FixedLenFeature([len(first.features.feature["row"].float_list.value)], tf.float32)
    records = tf.data.TFRecordDataset(str(path)).batch(count_rows_at_once(row.shape[0]))
    parsed = records.map(lambda batch: tf.io.parse_example(batch, {"row": row})["row"])
    return np.concatenate([batch.numpy() for batch in parsed])
