"""Parameters of TF-Slim's networks at 1,000 classes, from the shapes of their layers.

The papers han2019 and pittman2018 trained these networks. Layers with batch normalisation have a shift in place of the
bias, ResNet's also a scale. Their moving mean and variance are saved with the weights but have no gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from study.core.registry import Registry
from study.models.inception_v1 import MODULES

CLASSES, COLOURS = 1000, 3  # of ImageNet


@dataclass(frozen=True)
class Parameters:
    """Parameters of a network. trained: those with a gradient. statistics: moving means and variances."""

    trained: int
    statistics: int = 0

    @property
    def all(self) -> int:
        """Those that are saved, and that Keras counts."""
        return self.trained + self.statistics


NETWORKS: Registry[Callable[[], Parameters]] = Registry("network of TF-Slim")


def parameters(benchmark: str) -> Parameters:
    """The parameters of the network that the papers trained under this name."""
    return NETWORKS[benchmark]()


def _biased(width: int, *channels: int) -> int:
    """Weights and biases of convolutions of width x width from the first number of channels to the last."""
    return sum(width * width * inputs * outputs + outputs for inputs, outputs in pairwise(channels))


def _dense(*widths: int) -> int:
    return _biased(1, *widths)


@NETWORKS.register("lenet")
def _lenet() -> Parameters:
    """Images of 28 x 28 pixels, halved twice."""
    return Parameters(_biased(5, COLOURS, 32, 64) + _dense(7 * 7 * 64, 1024, CLASSES))


@NETWORKS.register("alexnet")
def _alexnet() -> Parameters:
    """A map of 5 x 5 at the end of the convolutions."""
    convolutions = _biased(11, COLOURS, 64) + _biased(5, 64, 192) + _biased(3, 192, 384, 384, 256)
    return Parameters(convolutions + _dense(5 * 5 * 256, 4096, 4096, CLASSES))


@NETWORKS.register("vgg_a")
def _vgg_a() -> Parameters:
    convolutions = _biased(3, COLOURS, 64, 128, 256, 256, 512, 512, 512, 512)
    return Parameters(convolutions + _dense(7 * 7 * 512, 4096, 4096, CLASSES))


@NETWORKS.register("inception_v1")
def _inception_v1() -> Parameters:
    """Batch normalisation without a scale: a shift for each filter, as many values as biases."""
    trained, filters, channels = _biased(7, COLOURS, 64) + _biased(1, 64, 64) + _biased(3, 64, 192), 64 + 64 + 192, 192
    for module in filter(None, MODULES):
        one, before_second, second, before_third, third, after_pooling = module
        trained += _biased(1, channels, one) + _biased(1, channels, after_pooling)
        trained += _biased(1, channels, before_second) + _biased(3, before_second, second)
        trained += _biased(1, channels, before_third) + _biased(3, before_third, third)
        filters += sum(module)
        channels = one + second + third + after_pooling
    return Parameters(trained + _dense(channels, CLASSES), 2 * filters)


def _resnet(*blocks: int) -> Callable[[], Parameters]:
    """A ResNet with so many blocks of three convolutions in its four stages; a scale and a shift for each filter."""

    def count() -> Parameters:
        weights, filters, channels = 7 * 7 * COLOURS * 64, 64, 64
        for stage, number in enumerate(blocks):
            width = 64 << stage
            for block in range(number):
                shortcut = 4 * width if block == 0 else 0
                weights += channels * (width + shortcut) + 9 * width * width + width * 4 * width
                filters += 6 * width + shortcut
                channels = 4 * width
        return Parameters(weights + 2 * filters + _dense(channels, CLASSES), 2 * filters)

    return count


NETWORKS.add("resnet50", _resnet(3, 4, 6, 3))
NETWORKS.add("resnet101", _resnet(3, 4, 23, 3))
