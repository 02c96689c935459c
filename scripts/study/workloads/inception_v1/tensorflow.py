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
        """Build the Keras model: three convolutions, nine modules, the mean of each map, dropout, softmax."""
        model = self.spec["model"]
        first = layers.Input(shape)
        maps = layers.MaxPooling2D(3, 2, padding="same")(_apply_convolution(model, first, 64, 7, stride=2))
        maps = _apply_convolution(model, _apply_convolution(model, maps, 64, 1), 192, 3)
        maps = layers.MaxPooling2D(3, 2, padding="same")(maps)
        widths = iter((3, self.last_pooling))
        for filters in inception_v1.MODULES:
            if filters:
                maps = _apply_module(model, maps, filters, self.third_branch)
            else:
                maps = layers.MaxPooling2D(next(widths), 2, padding="same")(maps)
        maps = dropout(model["dropout"])(layers.GlobalAveragePooling2D()(maps))
        return Model(first, output(model)(maps))


def _apply_module(model: Mapping[str, Any], inputs: Any, filters: tuple[int, ...], width: int) -> Any:
    """Apply an inception module of four parallel branches; the filters of the third are width x width."""
    first, before_second, second, before_third, third, after_pooling = filters
    pooled = layers.MaxPooling2D(3, 1, padding="same")(inputs)
    branches = [
        _apply_convolution(model, inputs, first, 1),
        _apply_convolution(model, _apply_convolution(model, inputs, before_second, 1), second, 3),
        _apply_convolution(model, _apply_convolution(model, inputs, before_third, 1), third, width),
        _apply_convolution(model, pooled, after_pooling, 1),
    ]
    return layers.Concatenate()(branches)


def _apply_convolution(model: Mapping[str, Any], inputs: Any, filters: int, width: int, stride: int = 1) -> Any:
    """Apply a convolution without bias, batch normalisation without scale, and ReLU."""
    maps = layers.Conv2D(
        filters,
        width,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=l2(model),
    )(inputs)
    maps = layers.BatchNormalization(scale=False, momentum=BATCH_NORM_DECAY)(maps)
    return layers.Activation("relu")(maps)
