"""How many steps had a finite loss; nothing else in the training step changes."""

from __future__ import annotations

from typing import Any


class FiniteSteps:
    """Counts the steps with a finite loss. model: compiled; its training step gets the count."""

    def __init__(self, model: Any) -> None:
        import tensorflow as tf

        strategy = model.distribute_strategy
        if strategy._should_use_with_coordinator:  # the count lies with the weights, where all workers reach it
            with strategy.scope():
                self._finite = tf.Variable(0, trainable=False, dtype=tf.int64)
        else:
            with tf.device("/CPU:0"):
                self._finite = tf.Variable(0, trainable=False, dtype=tf.int64)
        train, count = model.train_step, tf.autograph.experimental.do_not_convert(self._count)

        def train_step(data: Any) -> Any:
            return count(train(data))

        model.train_step = tf.autograph.experimental.do_not_convert(train_step)

    def _count(self, logs: Any) -> Any:
        """The loss in ``logs`` is Keras's mean of the epoch so far: after one step it stays as it is, not finite."""
        import tensorflow as tf

        self._finite.assign_add(tf.cast(tf.math.is_finite(logs["loss"]), tf.int64))
        return logs

    def taken(self) -> int:
        """The count since the last call."""
        found = int(self._finite.numpy())
        self._finite.assign(0)
        return found
