"""P1B1 in Keras: an autoencoder of dense layers."""

from typing import Any

import tensorflow as tf
from tf_keras import Sequential, layers

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
        return [correlation]


def correlation(y_true: Any, y_pred: Any) -> Any:
    """Pearson's correlation over all values of a batch; Keras shows the mean over an epoch's batches."""
    true = y_true - tf.reduce_mean(y_true)
    found = y_pred - tf.reduce_mean(y_pred)
    norm = tf.sqrt(tf.reduce_sum(tf.square(true)) * tf.reduce_sum(tf.square(found)))
    return tf.math.divide_no_nan(tf.reduce_sum(true * found), norm)
