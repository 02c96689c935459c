"""Blocks of preprocessed samples, which the members of an ensemble share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.base import BlockOrder
from study.backends.tensorflow import input
from study.backends.tensorflow.gathering import gatherer
from study.data.samples import SampleSource


def blocks(samples: SampleSource, order: BlockOrder, reader: int, readers: int) -> Iterator[tuple[NDArray[Any], ...]]:
    """As `study.backends.base.Backend.blocks`, one block ahead."""
    found = iter(dataset(samples, order, reader, readers))  # whose threads begin now
    return (tuple(array.numpy() for array in block) for block in found)


def form(samples: SampleSource, order: BlockOrder) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    """As `study.backends.base.Backend.block_form`."""
    specs = dataset(samples, order, 0, 1).element_spec
    return [(np.dtype(spec.dtype.as_numpy_dtype), tuple(spec.shape[1:].as_list())) for spec in specs]


def dataset(samples: SampleSource, order: BlockOrder, reader: int, readers: int) -> Any:
    """The same as a ``tf.data.Dataset``."""
    import tensorflow as tf

    with tf.device("/CPU:0"):
        gather, drawn = gatherer(samples), input.drawn(samples, lambda epoch: (order.positions(epoch), epoch))

        def of_epoch(epoch: Any) -> Any:
            chosen = input.epochs(tf.data.Dataset.from_tensors(epoch), drawn, order.block_samples)
            return chosen.shard(readers, reader)

        epochs = tf.data.Dataset.range(order.first_epoch, order.first_epoch + order.epochs)
        positions = epochs.flat_map(of_epoch).take(order.own_blocks(reader, readers))
    return input.pipeline(positions, gather, max(1, samples.threads))
