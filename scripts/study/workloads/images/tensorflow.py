"""Metrics and layers that the Keras models of all workloads on images share.

Keras is imported when it is used: a user's own model in one file imports this module in the plan.
"""

from collections.abc import Mapping
from typing import Any

from study.workloads import base
from study.workloads.images import TOP, TOP5_ACCURACY, ImageWorkload


class ImageBenchmark(ImageWorkload, base.Benchmark):
    """A benchmark on images with its metrics. Its module adds `build_model`."""

    def metrics(self) -> list[Any]:
        """The Keras metrics of `metric_names`."""
        from tf_keras.metrics import TopKCategoricalAccuracy

        return [TopKCategoricalAccuracy(TOP, name) if name == TOP5_ACCURACY else name for name in self.metric_names]


def l2(model: Mapping[str, Any]) -> Any:
    """The L2 regulariser of a layer's kernel; None if the benchmark has no L2."""
    from tf_keras import regularizers

    return regularizers.l2(model["l2"]) if model["l2"] else None


def convolution(model: Mapping[str, Any], filters: int, width: int, stride: int = 1, padding: str = "same") -> Any:
    """A convolution layer with ReLU, and initial weights for ReLU (He et al., arXiv:1502.01852)."""
    from tf_keras import layers

    return layers.Conv2D(
        filters,
        width,
        strides=stride,
        padding=padding,
        activation="relu",
        kernel_initializer="he_normal",
        kernel_regularizer=l2(model),
    )


def hidden(model: Mapping[str, Any], units: int) -> Any:
    """A hidden dense layer with ReLU, initial weights for ReLU, and L2."""
    from tf_keras import layers

    return layers.Dense(units, activation="relu", kernel_initializer="he_normal", kernel_regularizer=l2(model))


def output(model: Mapping[str, Any]) -> Any:
    """The last dense layer, which gives a probability per class by softmax."""
    from tf_keras import layers

    return layers.Dense(model["classes"], activation="softmax", kernel_regularizer=l2(model))
