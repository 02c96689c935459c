"""Dropout and shuffling that depend only on seed, epoch and step, so that a resumed run continues exactly."""

from collections.abc import Iterable
from typing import Any

import numpy as np

LAYERS = 64  # more than any model has


def seed_dropout(model: Any, seed: Any) -> None:
    """Make the masks of all dropout layers of ``model`` a function of ``seed`` and the optimizer's step.

    seed: an integer or a scalar tensor.
    """
    import tensorflow as tf

    step = model.optimizer.iterations
    layers = model._flatten_layers(include_self=False)  # also of a network within the model
    for index, layer in enumerate(layer for layer in layers if type(layer).__name__ == "Dropout"):
        layer.next_seed = lambda index=index: tf.stack([tf.cast(seed, tf.int64), step * LAYERS + index])


class EpochOrder:
    """The order of the training samples, different in each epoch."""

    def __init__(self, seed: int, epoch: int = 0, buffer: int = 0) -> None:
        """epoch: the first epoch, from 0. buffer: samples among which the next one is drawn; 0 for all of them."""
        import tensorflow as tf

        self._buffer = buffer
        with tf.device("/CPU:0"):
            self._seed, self._epoch = seed, tf.Variable(epoch, trainable=False, dtype=tf.int64)

    @property
    def epoch(self) -> Any:
        """The current epoch from 0, an int64 variable."""
        return self._epoch

    def set(self, epoch: int) -> None:
        """Set the next epoch."""
        self._epoch.assign(epoch)

    def positions(self, number: int) -> Any:
        """The positions 0 to ``number`` - 1, a tensor, in the order of the current epoch."""
        import tensorflow as tf

        seed = tf.stack([tf.cast(self._seed, tf.int64), self._epoch])
        if self._buffer:
            drawn = tf.random.stateless_uniform((number,), seed, dtype=tf.float64)
            return tf.ensure_shape(tf.numpy_function(buffered, [drawn, self._buffer], tf.int64), (None,))
        return tf.random.experimental.stateless_shuffle(tf.range(number, dtype=tf.int64), seed)


def buffered(drawn: np.ndarray, size: int) -> np.ndarray:
    """The positions 0 to len(drawn) - 1 as they leave a buffer of ``size`` that is refilled in their order.

    drawn: numbers from 0 to 1, each of which chooses the next position among those in the buffer.
    """
    number = len(drawn)
    kept, order = list(range(min(size, number))), np.empty(number, np.int64)
    for place, share in enumerate(drawn):
        index, following = int(share * len(kept)), place + size
        order[place] = kept[index]
        if following < number:
            kept[index] = following
        else:
            kept[index] = kept[-1]
            kept.pop()
    return order


class OrdersByRank:
    """The `EpochOrder` of each of several ranks, for one rank that emulates them."""

    def __init__(self, seeds: Iterable[int], epoch: int = 0, buffer: int = 0) -> None:
        """seeds: of the ranks. epoch, buffer: as of `EpochOrder`."""
        self._orders = [EpochOrder(seed, epoch, buffer) for seed in seeds]

    @property
    def epoch(self) -> Any:
        """The current epoch from 0, an int64 variable."""
        return self._orders[0].epoch

    def set(self, epoch: int) -> None:
        """Set the next epoch."""
        for order in self._orders:
            order.set(epoch)

    def positions(self, number: int) -> Any:
        """The positions 0 to ``number`` - 1 in each rank's order, a tensor of shape (number, ranks)."""
        import tensorflow as tf

        return tf.stack([order.positions(number) for order in self._orders], axis=1)
