"""P1B1 in Keras: an autoencoder of dense layers."""

from typing import Any

import tensorflow as tf
from tf_keras import Sequential, layers, metrics

from study.workloads import base, p1b1


class Benchmark(p1b1.Workload, base.Benchmark):
    """P1B1 with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: dense layers down to the bottleneck and up again."""
        model = self.spec["model"]
        hidden = [*model["encoder"], model["bottleneck"], *reversed(model["encoder"])]
        return Sequential(
            [
                layers.Input(shape),
                *(layers.Dense(units, activation=model["activation"]) for units in hidden),
                layers.Dense(shape[0], activation=model["output_activation"]),
            ]
        )

    def metrics(self) -> list[Any]:
        """The Keras metrics of `metric_names`."""
        return [Correlation("correlation")]


class Correlation(metrics.Metric):
    """Pearson's correlation over all values of all samples of an epoch; 0 if one side has no variance.

    Its state are sums, which Keras adds up over the replicas of a strategy.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, dtype=tf.float64)
        self._sums = self.add_weight("sums", shape=(6,), initializer="zeros", dtype=tf.float64)

    def reset_state(self) -> None:
        """Forget all batches, before an epoch."""
        self._sums.assign(tf.zeros_like(self._sums))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add the batch's sums of values, squares and products."""
        true, predicted = tf.cast(y_true, tf.float64), tf.cast(y_pred, tf.float64)
        terms = [tf.ones_like(true), true, predicted, tf.square(true), tf.square(predicted), true * predicted]
        self._sums.assign_add(tf.stack([tf.reduce_sum(each) for each in terms]))

    def result(self) -> Any:
        """The correlation over all batches since the last reset."""
        number, true, predicted, squares, others, products = tf.unstack(self._sums)
        number = tf.maximum(number, 1.0)
        true_deviations, predicted_deviations = squares - true**2 / number, others - predicted**2 / number
        is_flat = (true_deviations <= base.FLAT * squares) | (predicted_deviations <= base.FLAT * others)
        norm = tf.sqrt(tf.where(is_flat, tf.ones_like(number), true_deviations * predicted_deviations))
        return tf.where(is_flat, tf.zeros_like(number), (products - true * predicted / number) / norm)
