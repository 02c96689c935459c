"""P1B1 in Keras: an autoencoder of dense layers."""

from typing import Any

import tensorflow as tf
from tf_keras import Sequential, layers, metrics

from study.workloads import base, p1b1


class Benchmark(p1b1.Workload, base.Benchmark):
    """P1B1 with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Dense layers down to the bottleneck and up again."""
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
        """Before an epoch."""
        self._sums.assign(tf.zeros_like(self._sums))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch."""
        true, found = tf.cast(y_true, tf.float64), tf.cast(y_pred, tf.float64)
        terms = [tf.ones_like(true), true, found, tf.square(true), tf.square(found), true * found]
        self._sums.assign_add(tf.stack([tf.reduce_sum(each) for each in terms]))

    def result(self) -> Any:
        """Of all batches since the last reset."""
        number, true, found, squares, others, products = tf.unstack(self._sums)
        number = tf.maximum(number, 1.0)
        of_true, of_found = squares - true**2 / number, others - found**2 / number
        is_flat = (of_true <= base.FLAT * squares) | (of_found <= base.FLAT * others)
        norm = tf.sqrt(tf.where(is_flat, tf.ones_like(number), of_true * of_found))
        return tf.where(is_flat, tf.zeros_like(number), (products - true * found / number) / norm)
