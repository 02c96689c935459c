"""Measures of a rank's training steps: its own compute time, the durations of steps, and how many had a finite loss.

The sum of an epoch is in a variable of its own, which is no part of the model's state: it is neither broadcast nor
in checkpoints, and the weights are the same without it, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from study.backends.base import summarize_step_times
from study.backends.tensorflow.gradient_averaging import Averaging
from study.experiment.definition import RunDefinition
from study.instruments.phases import WallClock


class StepMeasures:
    """Measures the steps of one rank: `observe` before the first epoch, `end_epoch` after each."""

    def __init__(self, run: RunDefinition, steps: int = 0) -> None:
        """steps: of an epoch."""
        import tensorflow as tf

        # A GPU's work is only queued when TensorFlow takes the time; emulated ranks take turns, so none is timed.
        self._times = run.machine["gpus_per_rank"] == 0 and run.emulated_ranks == 1
        with tf.device("/CPU:0"):
            self._compute_s = tf.Variable(0, trainable=False, dtype=tf.float64)
            # When each step of the epoch began.
            self._begins = tf.Variable(tf.zeros(steps, tf.float64), trainable=False) if self._times and steps else None
        self._durations: list[np.ndarray] = []  # of each epoch's steps but the last
        self._clock = WallClock()
        self._begun: Any = None  # tensors of the step that is being traced
        self._graph: Any = None  # in which the step is being traced
        self._ends = 0  # of the step that is being traced
        # Of observed steps: whether each has one end, always. A step of a model's own may have several, or a
        # condition; its time would count twice, or not in each step.
        self._has_ended = True

    def observe(self, model: Any, averaging: Averaging) -> None:
        """Measure each training step of ``model``, compiled with the averaging's optimizer, from now on."""
        import tensorflow as tf

        if not self._times:
            return
        self._has_ended = False
        train = model.train_step
        begin, end = (tf.autograph.experimental.do_not_convert(each) for each in (self._note_begin, self._note_end))

        def train_step(data: Any) -> Any:
            return train(begin(data, model.optimizer.iterations))

        model.train_step = tf.autograph.experimental.do_not_convert(train_step)
        averaging.observe_gradients(model.optimizer, end)

    def _note_begin(self, data: Any, step: Any) -> Any:
        """Note the begin of a step; returns its batch ``data``, which depends on the note."""
        import tensorflow as tf

        self._graph, self._ends = tf.compat.v1.get_default_graph(), 0
        with tf.control_dependencies(tf.nest.flatten(data)):
            self._begun = tf.timestamp()
        if self._begins is not None:
            place = step % self._begins.shape[0]
            self._begins.scatter_nd_update(tf.reshape(place, (1, 1)), tf.reshape(self._begun, (1,)))
        with tf.control_dependencies([self._begun]):
            return tf.nest.map_structure(tf.identity, data)

    def _note_end(self, gradients: list[Any]) -> None:
        """Note when the last of the rank's own ``gradients`` is ready; the allreduces of the others do not wait."""
        import tensorflow as tf

        self._ends += 1
        self._has_ended = self._ends == 1 and tf.compat.v1.get_default_graph() is self._graph
        if not self._has_ended:
            return
        with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
            self._compute_s.assign_add(tf.timestamp() - self._begun)

    def end_epoch(self, steps: int) -> dict[str, float]:
        """End an epoch: its mean compute time per step, ``compute_per_step_s``; the next epoch starts from zero.

        Empty if it is not measured, and while a clock was set.
        """
        is_timed, seconds = self._times and not self._clock.was_set(), float(self._compute_s.numpy())
        self._compute_s.assign(0)
        if self._begins is not None and is_timed:
            self._durations.append(np.diff(self._begins.numpy()))
        return {"compute_per_step_s": seconds / steps} if is_timed and self._has_ended else {}

    def summarize_step_times(self) -> dict[str, float] | None:
        """Seconds from one step's begin to the next one's; see `study.backends.base.summarize_step_times`."""
        return summarize_step_times(self._durations)


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
        """Count a step if its loss in ``logs``, Keras's mean of the epoch so far, is finite."""
        import tensorflow as tf

        self._finite.assign_add(tf.cast(tf.math.is_finite(logs["loss"]), tf.int64))
        return logs

    def take_count(self) -> int:
        """The count since the last call; it starts again from zero."""
        number = int(self._finite.numpy())
        self._finite.assign(0)
        return number
