"""Batches of a sample source as tensors: gathered inside the graph where its samples are arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.data.samples import Arrays, Joined, SampleSource

ALIGNMENT = 64  # bytes; alignment of TensorFlow's own tensors
NO_POSITIONS = np.empty(0, np.int64)  # positions of no samples
Gather = Callable[..., tuple[Any, Any]]


@functools.singledispatch
def make_gatherer(samples: SampleSource) -> Gather:
    """Make a function from positions and, in training, random changes to a batch (x, y): all of them tensors.

    The changes are the rows of `SampleSource.changes`. A kind of source that is not registered here gives its batches
    itself, in Python.
    """
    import tensorflow as tf

    empty = samples.batch(NO_POSITIONS)
    is_autoencoder = empty[0] is empty[1]
    arrays = empty[:1] if is_autoencoder else empty
    kinds = [tf.as_dtype(array.dtype) for array in arrays]

    def batch(*arguments: NDArray[Any]) -> list[NDArray[Any]]:
        return list(samples.batch(*arguments))[: len(arrays)]

    def gather(chosen: Any, changes: Any = None) -> tuple[Any, Any]:
        arguments = [chosen] if changes is None else [chosen, changes]
        tensors = tf.nest.flatten(tf.numpy_function(batch, arguments, kinds))  # eagerly, one tensor is no list
        tensors = [tf.ensure_shape(each, (None, *array.shape[1:])) for each, array in zip(tensors, arrays, strict=True)]
        return tensors[0], tensors[-1]

    return tf.autograph.experimental.do_not_convert(gather)


@make_gatherer.register
def _gather_arrays(samples: Arrays) -> Gather:
    """Make the function that gathers samples in memory inside the graph."""
    import tensorflow as tf

    x = to_tensor(samples.x)
    y = x if samples.y is samples.x else to_tensor(samples.y)
    order = None if samples.order is None else tf.convert_to_tensor(samples.order)

    def gather(chosen: Any, changes: Any = None) -> tuple[Any, Any]:
        if order is not None:
            chosen = tf.gather(order, chosen)
        inputs = tf.gather(x, chosen)
        return inputs, inputs if y is x else tf.gather(y, chosen)

    return tf.autograph.experimental.do_not_convert(gather)


@make_gatherer.register
def _gather_joined(samples: Joined) -> Gather:
    """Make the function that joins the rows of several tables inside the graph."""
    import tensorflow as tf

    values, y = to_tensor(samples.values), to_tensor(samples.y)
    tables = [to_tensor(table) for table in samples.tables]
    keys = [to_tensor(key) for key in samples.keys]

    def gather(chosen: Any, changes: Any = None) -> tuple[Any, Any]:
        rows = [tf.gather(table, tf.gather(key, chosen)) for table, key in zip(tables, keys, strict=True)]
        return tf.concat([*rows, tf.gather(values, chosen)], axis=1), tf.gather(y, chosen)

    return tf.autograph.experimental.do_not_convert(gather)


def to_tensor(array: NDArray[Any]) -> Any:
    """A tensor of ``array`` that shares its memory if TensorFlow can use it, such as a mapped file; else a copy."""
    import tensorflow as tf

    if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0 and array.size:
        return tf.experimental.dlpack.from_dlpack(np.asarray(array).__dlpack__())
    return tf.convert_to_tensor(array)
