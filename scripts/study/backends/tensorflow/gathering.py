"""Batches of a sample source as tensors: gathered inside the graph where its samples are arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.data.samples import Arrays, Joined, SampleSource

ALIGNMENT = 64  # bytes; alignment of TensorFlow's own tensors
NONE = np.empty(0, np.int64)  # positions of no samples
Gather = Callable[..., tuple[Any, Any]]


@functools.singledispatch
def gatherer(samples: SampleSource) -> Gather:
    """A function from positions and, in training, random changes to a batch (x, y): all of them tensors.

    The changes are the rows of `SampleSource.changes`. A kind of source that is not registered here gives its batches
    itself, in Python.
    """
    import tensorflow as tf

    empty = samples.batch(NONE)
    is_autoencoder = empty[0] is empty[1]
    kept = empty[:1] if is_autoencoder else empty
    kinds = [tf.as_dtype(array.dtype) for array in kept]

    def batch(*given: NDArray[Any]) -> list[NDArray[Any]]:
        return list(samples.batch(*given))[: len(kept)]

    def gather(chosen: Any, changes: Any = None) -> tuple[Any, Any]:
        given = [chosen] if changes is None else [chosen, changes]
        found = tf.nest.flatten(tf.numpy_function(batch, given, kinds))  # eagerly, one tensor is no list
        found = [tf.ensure_shape(each, (None, *array.shape[1:])) for each, array in zip(found, kept, strict=True)]
        return found[0], found[-1]

    return tf.autograph.experimental.do_not_convert(gather)


@gatherer.register
def _of_arrays(samples: Arrays) -> Gather:
    import tensorflow as tf

    x = tensor(samples.x)
    y = x if samples.y is samples.x else tensor(samples.y)
    order = None if samples.order is None else tf.convert_to_tensor(samples.order)

    def gather(chosen: Any, changes: Any = None) -> tuple[Any, Any]:
        if order is not None:
            chosen = tf.gather(order, chosen)
        found = tf.gather(x, chosen)
        return found, found if y is x else tf.gather(y, chosen)

    return tf.autograph.experimental.do_not_convert(gather)


@gatherer.register
def _of_joined(samples: Joined) -> Gather:
    import tensorflow as tf

    values, y = tensor(samples.values), tensor(samples.y)
    tables = [tensor(table) for table in samples.tables]
    keys = [tensor(key) for key in samples.keys]

    def gather(chosen: Any, changes: Any = None) -> tuple[Any, Any]:
        rows = [tf.gather(table, tf.gather(key, chosen)) for table, key in zip(tables, keys, strict=True)]
        return tf.concat([*rows, tf.gather(values, chosen)], axis=1), tf.gather(y, chosen)

    return tf.autograph.experimental.do_not_convert(gather)


def tensor(array: NDArray[Any]) -> Any:
    """A tensor of ``array`` that shares its memory if TensorFlow can use it, such as a mapped file; else a copy."""
    import tensorflow as tf

    if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0 and array.size:
        return tf.experimental.dlpack.from_dlpack(np.asarray(array).__dlpack__())
    return tf.convert_to_tensor(array)
