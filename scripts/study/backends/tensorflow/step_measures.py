"""What training steps show of a rank: its own compute time, and its gradients before and after they are averaged.

The sums of an epoch are in variables of their own, which are no part of the model's state: they are neither broadcast
nor in checkpoints, and the weights are the same without them, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from study.backends.base import step_times
from study.backends.tensorflow.gradient_averaging import Averaging
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition
from study.instruments.phases import WallClock

SUMS = ("compute_s", "gradient_square_local", "gradient_square_averaged", "gradient_noise_steps")


class StepMeasures:
    """Measures the steps of one rank: `observe` before the first epoch, `end_epoch` after each."""

    def __init__(self, run: RunDefinition, ranks: int, steps: int = 0) -> None:
        """ranks: over which gradients are averaged; one has no gradient noise to measure. steps: of an epoch."""
        import tensorflow as tf

        # A GPU's work is only queued when TensorFlow takes the time; emulated ranks take turns, so none is timed.
        self._times = run.machine["gpus_per_rank"] == 0 and run.emulated_ranks == 1
        self._noise_every = run["gradient_noise_every"] if ranks > 1 else 0
        self._batch_size = run.derived.batch_size_per_rank
        with tf.device("/CPU:0"):
            self._sums = {name: tf.Variable(0, trainable=False, dtype=tf.float64) for name in SUMS}
            # When each step of the epoch began.
            self._begins = tf.Variable(tf.zeros(steps, tf.float64), trainable=False) if self._times and steps else None
        self._durations: list[np.ndarray] = []  # of each epoch's steps but the last
        self._clock = WallClock()
        self._begun: Any = None  # tensors of the step that is being traced
        self._is_sampled: Any = None
        self._graph: Any = None  # in which the step is being traced
        self._ends = 0  # of the step that is being traced
        # Of observed steps: whether each has one end, always. A step of a model's own may have several, or a
        # condition; its gradients would count twice, or not in each step.
        self._has_ended = True

    def observe(self, model: Any, averaging: Averaging) -> None:
        """Measure each training step of ``model``, compiled with the averaging's optimizer, from now on."""
        import tensorflow as tf

        if not (self._times or self._noise_every):
            return
        self._has_ended = False
        train = model.train_step
        begin, end = (tf.autograph.experimental.do_not_convert(each) for each in (self._begin, self._end))

        def train_step(data: Any) -> Any:
            return train(begin(data, model.optimizer.iterations))

        model.train_step = tf.autograph.experimental.do_not_convert(train_step)
        averaging.observe_gradients(model.optimizer, end)

    def _begin(self, data: Any, step: Any) -> Any:
        """``data``, the step's batch, which exists when the step's begin has been noted."""
        import tensorflow as tf

        self._graph, self._ends = tf.compat.v1.get_default_graph(), 0
        batch = tf.nest.flatten(data)
        self._is_sampled = self.is_sampled(step, tf.shape(batch[0])[0])
        if not self._times:
            return data
        with tf.control_dependencies(batch):
            self._begun = tf.timestamp()
        if self._begins is not None:
            place = step % self._begins.shape[0]
            self._begins.scatter_nd_update(tf.reshape(place, (1, 1)), tf.reshape(self._begun, (1,)))
        with tf.control_dependencies([self._begun]):
            return tf.nest.map_structure(tf.identity, data)

    def _end(self, gradients: list[Any], averages: list[Any]) -> None:
        """Note when the last of the rank's own ``gradients`` is ready; the allreduces of the others do not wait."""
        import tensorflow as tf

        self._ends += 1
        self._has_ended = self._ends == 1 and tf.compat.v1.get_default_graph() is self._graph
        if not self._has_ended:
            return
        if self._times:
            with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
                self._sums["compute_s"].assign_add(tf.timestamp() - self._begun)
        self.add_squares(self._is_sampled, lambda: squared_norm(gradients), averages)

    def is_sampled(self, step: Any, samples: Any) -> Any:
        """Whether the gradient noise is measured in ``step`` (from 0, a tensor) with so many ``samples`` per rank.

        The last batch of an epoch may be smaller; its gradients have another noise. None if it is never measured.
        """
        if not self._noise_every:
            return None
        return (step % self._noise_every == 0) & (samples == self._batch_size)

    def add_squares(self, is_sampled: Any, local: Callable[[], Any], averages: list[Any]) -> None:
        """Add a step's squared norms if it ``is_sampled``. local: gives the mean over the ranks that this one has."""
        import tensorflow as tf

        if is_sampled is None:
            return

        def add() -> Any:
            self._sums["gradient_square_local"].assign_add(local())
            self._sums["gradient_square_averaged"].assign_add(squared_norm(averages))
            return self._sums["gradient_noise_steps"].assign_add(1).read_value()

        tf.cond(is_sampled, add, lambda: tf.zeros((), tf.float64))

    def end_epoch(self, steps: int) -> dict[str, float]:
        """Columns of ``history.csv`` for an epoch of so many steps; the next epoch starts from zero.

        ``compute_per_step_s``: mean. ``gradient_square_local``, ``gradient_square_averaged``: sums over
        ``gradient_noise_steps`` steps. What is not measured is left out, and times while a clock was set.
        """
        if self._noise_every and not self._has_ended:
            raise StudyError(
                "gradient_noise_every: the model's own train_step applies gradients several times, or not in each "
                "step; set it to 0"
            )
        is_timed = self._times and not self._clock.was_set()
        found = {name: float(each.numpy()) for name, each in self._sums.items()}
        for each in self._sums.values():
            each.assign(0)
        if self._begins is not None and is_timed:
            self._durations.append(np.diff(self._begins.numpy()))
        compute = {"compute_per_step_s": found.pop("compute_s") / steps}
        return (compute if is_timed and self._has_ended else {}) | (found if self._noise_every else {})

    def step_times(self) -> dict[str, float] | None:
        """Seconds from one step's begin to the next one's; see `study.backends.base.step_times`."""
        return step_times(self._durations)


def squared_norm(gradients: list[Any]) -> Any:
    """The sum of the squares of all values of all ``gradients``, float64."""
    import tensorflow as tf

    halves = [tf.nn.l2_loss(tf.convert_to_tensor(each)) for each in gradients if each is not None]
    return 2 * tf.add_n([tf.cast(half, tf.float64) for half in halves])
