"""Inception V1 as TF-Slim has it, which pittman2018 trained: GoogLeNet with 3 x 3 filters in place of 5 x 5.

Each convolution is followed by batch normalisation without a scale, in place of a bias and of local response
normalisation. The two auxiliary classifiers are left out. `study.models.googlenet` has the original filters.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from study.data.randomness import dropout
from study.models import base, images

# Filters of a module: 1 x 1; 1 x 1 before 3 x 3, 3 x 3; 1 x 1 before the third branch's, these; 1 x 1 after pooling.
# Source: Szegedy et al., arXiv:1409.4842, Table 1.
MODULES = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,  # max pooling
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


class Benchmark(images.ImageBenchmark):
    """Inception V1 in TF-Slim's shape: 6,632,184 parameters at 1,000 classes, of which 14,560 are moving statistics."""

    model_schema: ClassVar[dict[str, Any]] = images.schema_of(dropout=base.SHARE)
    third_branch = 3  # width of its filters
    last_pooling = 2

    @property
    def minimum_size(self) -> int:
        """Five halvings, all padded: any size would do, but below this the modules see a single pixel."""
        return 32

    def build_model(self, shape: tuple[int, ...]) -> Any:
        """Two convolutions, nine modules, the mean of each map, dropout, softmax."""
        from tf_keras import Model, layers

        model = self.spec["model"]
        first = layers.Input(shape)
        found = layers.MaxPooling2D(3, 2, padding="same")(_normalised(model, first, 64, 7, stride=2))
        found = _normalised(model, _normalised(model, found, 64, 1), 192, 3)
        found = layers.MaxPooling2D(3, 2, padding="same")(found)
        widths = iter((3, self.last_pooling))
        for filters in MODULES:
            if filters:
                found = _module(model, found, filters, self.third_branch)
            else:
                found = layers.MaxPooling2D(next(widths), 2, padding="same")(found)
        found = dropout(model["dropout"])(layers.GlobalAveragePooling2D()(found))
        return Model(first, images.output(model)(found))


def _module(model: Mapping[str, Any], inputs: Any, filters: tuple[int, ...], width: int) -> Any:
    """Four branches, one beside the other; the filters of the third are width x width."""
    from tf_keras import layers

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
    from tf_keras import layers

    found = layers.Conv2D(
        filters,
        width,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=images.l2(model),
    )(inputs)
    found = layers.BatchNormalization(scale=False, momentum=images.BATCH_NORM_DECAY)(found)
    return layers.Activation("relu")(found)
