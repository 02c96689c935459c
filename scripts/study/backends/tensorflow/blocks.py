"""Blocks of preprocessed samples, which the members of an ensemble share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.base import BlockOrder
from study.backends.tensorflow import input
from study.backends.tensorflow.gathering import make_gatherer
from study.data.samples import SampleSource


def make_blocks(
    samples: SampleSource, order: BlockOrder, reader: int, readers: int
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Make the blocks of a reader, one ahead; see `study.backends.base.Backend.make_blocks`."""
    iterator = iter(make_block_dataset(samples, order, reader, readers))  # whose threads begin now
    return (tuple(array.numpy() for array in block) for block in iterator)


def describe_blocks(samples: SampleSource, order: BlockOrder) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    """(Type, shape of one sample) of each array of a block."""
    specs = make_block_dataset(samples, order, 0, 1).element_spec
    return [(np.dtype(spec.dtype.as_numpy_dtype), tuple(spec.shape[1:].as_list())) for spec in specs]


def make_block_dataset(samples: SampleSource, order: BlockOrder, reader: int, readers: int) -> Any:
    """Make a ``tf.data.Dataset`` of the blocks of a reader."""
    import tensorflow as tf

    with tf.device("/CPU:0"):
        gather, draw_epoch = (
            make_gatherer(samples),
            input.make_epoch_drawing(samples, lambda epoch: (order.positions(epoch), epoch)),
        )

        def make_epoch(epoch: Any) -> Any:
            chosen = input.join_epochs(tf.data.Dataset.from_tensors(epoch), draw_epoch, order.block_samples)
            return chosen.shard(readers, reader)

        epochs = tf.data.Dataset.range(order.first_epoch, order.first_epoch + order.epochs)
        positions = epochs.flat_map(make_epoch).take(order.own_blocks(reader, readers))
    return input.make_pipeline(positions, gather, max(1, samples.threads))
