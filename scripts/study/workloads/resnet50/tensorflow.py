"""ResNet-50 in Keras, as TF-Slim has it."""

from collections.abc import Mapping
from typing import Any

from tf_keras import Model, layers

from study.workloads import resnet50
from study.workloads.images import BATCH_NORM_DECAY
from study.workloads.images.tensorflow import ImageBenchmark, l2, output


class Benchmark(resnet50.Workload, ImageBenchmark):
    """ResNet-50 with its Keras model."""

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Build the Keras model: a convolution, pooling, the residual units, the mean of each map, softmax."""
        model = self.spec["model"]
        first = layers.Input(shape)
        maps = layers.Activation("relu")(_apply_convolution(model, first, 64, 7, 2))
        maps = layers.MaxPooling2D(3, 2, padding="same")(maps)
        for unit in self.list_units():
            maps = _apply_unit(model, maps, unit)
        return Model(first, output(model)(layers.GlobalAveragePooling2D()(maps)))


def _apply_unit(model: Mapping[str, Any], inputs: Any, unit: resnet50.Unit) -> Any:
    """Apply a residual unit."""
    maps = layers.Activation("relu")(_apply_convolution(model, inputs, unit.width, 1))
    maps = layers.Activation("relu")(_apply_convolution(model, maps, unit.width, 3, unit.stride))
    if unit.has_new_width:
        inputs = _apply_convolution(model, inputs, unit.outputs, 1, unit.stride)
    elif unit.stride > 1:
        inputs = layers.MaxPooling2D(1, unit.stride)(inputs)  # every second row and column
    maps = _apply_convolution(model, maps, unit.outputs, 1)
    return layers.Activation("relu")(layers.Add()([inputs, maps]))


def _apply_convolution(model: Mapping[str, Any], inputs: Any, filters: int, width: int, stride: int = 1) -> Any:
    """Apply a convolution without bias, padded alike on all sides, and batch normalisation."""
    border = width // 2
    padded = layers.ZeroPadding2D(border)(inputs) if border else inputs
    maps = layers.Conv2D(
        filters, width, stride, use_bias=False, kernel_initializer="he_normal", kernel_regularizer=l2(model)
    )(padded)
    return layers.BatchNormalization(momentum=BATCH_NORM_DECAY, epsilon=resnet50.BATCH_NORM_EPSILON)(maps)
