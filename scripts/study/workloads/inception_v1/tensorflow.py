"""Inception V1 in Keras, as TF-Slim has it."""

from collections.abc import Mapping
from typing import Any

from tf_keras import Model, layers

from study.workloads import inception_v1
from study.workloads.images import BATCH_NORM_DECAY
from study.workloads.images.tensorflow import ImageBenchmark, l2, output
from study.workloads.tensorflow import dropout


class Benchmark(inception_v1.Workload, ImageBenchmark):
    """Inception V1 with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Two convolutions, nine modules, the mean of each map, dropout, softmax."""
        model = self.spec["model"]
        first = layers.Input(shape)
        found = layers.MaxPooling2D(3, 2, padding="same")(_normalised(model, first, 64, 7, stride=2))
        found = _normalised(model, _normalised(model, found, 64, 1), 192, 3)
        found = layers.MaxPooling2D(3, 2, padding="same")(found)
        widths = iter((3, self.last_pooling))
        for filters in inception_v1.MODULES:
            if filters:
                found = _module(model, found, filters, self.third_branch)
            else:
                found = layers.MaxPooling2D(next(widths), 2, padding="same")(found)
        found = dropout(model["dropout"])(layers.GlobalAveragePooling2D()(found))
        return Model(first, output(model)(found))


def _module(model: Mapping[str, Any], inputs: Any, filters: tuple[int, ...], width: int) -> Any:
    """Four branches, one beside the other; the filters of the third are width x width."""
    one, before_second, second, before_third, third, after_pooling = filters
    pooled = layers.MaxPooling2D(3, 1, padding="same")(inputs)
    branches = [
        _normalised(model, inputs, one, 1),
        _normalised(model, _normalised(model, inputs, before_second, 1), second, 3),
        _normalised(model, _normalised(model, inputs, before_third, 1), third, width),
        _normalised(model, pooled, after_pooling, 1),
    ]
    return layers.Concatenate()(branches)


def _normalised(model: Mapping[str, Any], inputs: Any, filters: int, width: int, stride: int = 1) -> Any:
    """Convolution without bias, batch normalisation without scale, ReLU."""
    found = layers.Conv2D(
        filters,
        width,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=l2(model),
    )(inputs)
    found = layers.BatchNormalization(scale=False, momentum=BATCH_NORM_DECAY)(found)
    return layers.Activation("relu")(found)
