"""P1B3 in Keras: a multilayer perceptron for regression."""

from typing import Any

import tensorflow as tf
from tf_keras import Sequential, initializers, layers, metrics

from study.workloads import base, p1b3
from study.workloads.tensorflow import dropout


class Benchmark(p1b3.Workload, base.Benchmark):
    """P1B3 with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: dense layers with dropout, one output; the concentration is one more input.

        As in CANDLE, only the weights before the output are drawn from a normal distribution.
        """
        model = self.spec["model"]
        stack = [layers.Input(shape)]
        for units in model["dense"]:
            normal = initializers.RandomNormal(stddev=model["initial_stddev"])
            dense = layers.Dense(units, activation=model["activation"], kernel_initializer=normal)
            stack += [dense, dropout(model["dropout"])]
        return Sequential([*stack, layers.Dense(1)])

    def metrics(self) -> list[Any]:
        """The Keras metrics of `metric_names`."""
        return [metrics.R2Score(name="r2"), growth_sign_accuracy]


def growth_sign_accuracy(y_true: Any, y_pred: Any) -> Any:
    """Share of samples whose measured and predicted growth are both negative, or both not.

    CANDLE's p1b3_baseline_keras2.py has this as ``val_acc`` and ``test_acc``: ``numpy.digitize`` at category_cutoffs,
    [0.] by default, gives the classes, and the accuracy is the share of equal ones.
    """
    return tf.reduce_mean(tf.cast(tf.equal(y_true < 0, y_pred < 0), tf.float32), axis=-1)
