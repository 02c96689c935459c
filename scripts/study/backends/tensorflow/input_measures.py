"""Measures of the input of training: how long the model waits for its batches."""

from __future__ import annotations

from typing import Any

from study.instruments.phases import WallClock


class InputMeasures:
    """Measures one rank's training input; one epoch after the other."""

    def __init__(self) -> None:
        import tensorflow as tf

        self._clock = WallClock()
        with tf.device("/CPU:0"):
            self._waited = tf.Variable(0, trainable=False, dtype=tf.float64)

    def measure_waits(self, dataset: Any) -> Any:
        """Make a dataset like ``dataset`` that adds up the time for which its consumer waits for each element.

        `zip` asks its parts one after the other: the clock when the element is asked for, then the dataset.
        """
        import tensorflow as tf

        clock = tf.data.Dataset.range(1 << 62).map(lambda _: tf.timestamp())

        def add_waited(asked_at: Any, *element: Any) -> Any:
            with tf.control_dependencies([self._waited.assign_add(tf.timestamp() - asked_at)]):
                return tf.nest.map_structure(tf.identity, element)

        number = dataset.cardinality()
        timed = tf.data.Dataset.zip((clock, dataset)).map(lambda asked_at, element: add_waited(asked_at, *element))
        return timed.apply(tf.data.experimental.assert_cardinality(number))

    def end_epoch(self, steps: int) -> dict[str, float]:
        """End an epoch: its mean wait for batches, ``input_wait_per_step_s``; the next epoch starts from zero.

        Empty for an epoch in which a clock was set.
        """
        waited_s = float(self._waited.numpy())
        self._waited.assign(0)
        return {} if self._clock.was_set() else {"input_wait_per_step_s": waited_s / steps}
