"""Dropout and shuffling that depend only on seed, epoch and step, so that a resumed run continues exactly."""

from collections.abc import Iterable
from typing import Any

LAYERS = 64  # more than any model has


def dropout(rate: float) -> Any:
    """A Keras layer that drops ``rate`` of its inputs in training; `seed_dropout` must be called on its model."""
    import tensorflow as tf
    import tf_keras as keras

    class Dropout(keras.layers.Layer):
        """Keras's own layer draws its masks from a state that cannot be saved."""

        @tf.autograph.experimental.do_not_convert  # no control flow on tensors, which the first step would search for
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            return tf.nn.experimental.stateless_dropout(inputs, rate, self.next_seed()) if training else inputs

    layer = Dropout()
    layer.rate = rate
    return layer


def seed_dropout(model: Any, seed: Any) -> None:
    """Make the masks of all dropout layers of ``model`` a function of ``seed`` and the optimizer's step.

    seed: an integer or a scalar tensor.
    """
    import tensorflow as tf

    step = model.optimizer.iterations
    for index, layer in enumerate(layer for layer in model.layers if type(layer).__name__ == "Dropout"):
        layer.next_seed = lambda index=index: tf.stack([tf.cast(seed, tf.int64), step * LAYERS + index])


class EpochOrder:
    """The order of the training samples, different in each epoch."""

    def __init__(self, seed: int, epoch: int = 0) -> None:
        """epoch: the first epoch, from 0."""
        import tensorflow as tf

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
        return tf.random.experimental.stateless_shuffle(tf.range(number, dtype=tf.int64), seed)


class OrdersByRank:
    """The `EpochOrder` of each of several ranks, for one rank that emulates them."""

    def __init__(self, seeds: Iterable[int], epoch: int = 0) -> None:
        """seeds: of the ranks. epoch: the first epoch, from 0."""
        self._orders = [EpochOrder(seed, epoch) for seed in seeds]

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
