"""Divergence: a run whose loss is no longer finite has failed, and its step is told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from study.core.errors import StudyError

WORDS = "the loss is not finite"  # by which `study.launch.failure` knows it


class Divergence:
    """Counts the steps of an epoch with a finite loss; nothing else in the training step changes."""

    def __init__(self, model: Any, steps: int, epochs: int = 0) -> None:
        """model: compiled; its training step gets the count. steps: of an epoch. epochs: already trained."""
        import tensorflow as tf

        self._steps, self._before = steps, steps * epochs
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

    def check(self, logs: Mapping[str, float]) -> None:
        """At the end of an epoch, raise `StudyError` if a loss in ``logs`` is not finite."""
        finite = int(self._finite.numpy())
        self._finite.assign(0)
        self._before += self._steps
        losses = {name: logs[name] for name in ("loss", "val_loss") if name in logs}
        if not all(map(math.isfinite, losses.values())):
            step = self._before - self._steps + min(finite + 1, self._steps)
            told = ", ".join(f"{name} {value}" for name, value in losses.items())
            raise StudyError(f"{WORDS} from step {step} on ({told}); lower the learning rate")


def check_test(metrics: Mapping[str, float], steps: int) -> None:
    """Raise `StudyError` if the test loss is not finite. steps: of the whole run; its last one did it."""
    if not math.isfinite(metrics.get("loss", 0.0)):
        raise StudyError(f"{WORDS} after step {steps}, the last (test loss {metrics['loss']}); lower the learning rate")
