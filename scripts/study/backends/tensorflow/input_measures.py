"""What the input of training shows: how long the model waits for its batches, and a checksum of what it gets."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from study.instruments.phases import WallClock


class InputMeasures:
    """Measures one rank's training input; one epoch after the other."""

    def __init__(self, checksum: bool = False) -> None:
        """checksum: whether all values that the model gets are summed up, which takes time."""
        import tensorflow as tf

        self._has_checksum = checksum
        self._crc32, self._clock = 0, WallClock()
        with tf.device("/CPU:0"):
            self._waited = tf.Variable(0, trainable=False, dtype=tf.float64)

    def timed(self, dataset: Any) -> Any:
        """``dataset``, with the time added up for which its consumer waits for each element.

        `zip` asks its parts one after the other: the clock when the element is asked for, then the dataset.
        """
        import tensorflow as tf

        clock = tf.data.Dataset.range(1 << 62).map(lambda _: tf.timestamp())

        def noted(asked: Any, *element: Any) -> Any:
            with tf.control_dependencies([self._waited.assign_add(tf.timestamp() - asked)]):
                return tf.nest.map_structure(tf.identity, element)

        number = dataset.cardinality()
        timed = tf.data.Dataset.zip((clock, dataset)).map(lambda asked, element: noted(asked, *element))
        return timed.apply(tf.data.experimental.assert_cardinality(number))

    def summed(self, dataset: Any) -> Any:
        """``dataset``, with the checksum of all elements in their order."""
        import tensorflow as tf

        if not self._has_checksum:
            return dataset

        def add(*arrays: np.ndarray) -> np.int64:
            for array in arrays:
                self._crc32 = zlib.crc32(np.ascontiguousarray(array).data, self._crc32)
            return np.int64(self._crc32)

        def noted(*element: Any) -> Any:
            found = tf.numpy_function(add, tf.nest.flatten(element), tf.int64)
            with tf.control_dependencies([found]):
                return tf.nest.map_structure(tf.identity, element)

        return dataset.map(noted)

    def end_epoch(self, steps: int) -> dict[str, float | int]:
        """Columns of ``history.csv`` for an epoch of so many steps; the next epoch starts from zero.

        An epoch in which a clock was set has no ``input_wait_per_step_s``.
        """
        found: dict[str, float | int] = {"input_wait_per_step_s": float(self._waited.numpy()) / steps}
        if self._clock.was_set():
            found.clear()
        self._waited.assign(0)
        if self._has_checksum:
            found["input_crc32"], self._crc32 = self._crc32, 0
        return found
