"""Operations of training on one sample, and parameters, counted from the shapes of a model's layers.

The rule for operations (FLOP): a dense layer or a convolution has two, a multiplication and an addition, per weight and
position in its forward pass. Its backward pass has twice as many: the gradients of its weights and those of its input.
The first layer needs no gradient of its input. Everything else is not counted: biases, activations, pooling, dropout,
the loss, regularisation and the optimizer's update, below 1 % at full width together (the update is per step).

Parameters are those with a gradient: the weights, the biases, and the shifts and scales of batch normalisation.

These are the operations that the model needs, whatever the hardware executes. The benchmarks' own modules are part of
the training code, whose version a count must not change; so the counts are here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from study.core.errors import StudyError
from study.core.registry import Registry
from study.workloads import googlenet, inception_v1
from study.workloads.inception_v1 import MODULES

BIAS, SHIFT, SHIFT_AND_SCALE = 1, 1, 2  # trained values of an output beside its weights


@dataclass(frozen=True)
class Layer:
    """A dense layer or a convolution.

    positions: at which its weights are used, 1 of a dense layer. inputs: weights of one output. outputs: units or
    filters. others: trained values of an output beside its weights. is_normalised: by batch normalisation, which has a
    moving mean and a moving variance of each output.
    """

    positions: int
    inputs: int
    outputs: int
    others: int = BIAS
    is_normalised: bool = False

    @property
    def multiply_adds(self) -> int:
        """In the forward pass on one sample."""
        return self.positions * self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """Those with a gradient."""
        return (self.inputs + self.others) * self.outputs

    @property
    def statistics(self) -> int:
        """Values that are kept beside the parameters and have no gradient."""
        return 2 * self.outputs if self.is_normalised else 0


Layers = Callable[[dict[str, Any], int], list[Layer]]
# From (``model`` of the benchmark's YAML, features of a sample) to the layers.
LAYERS: Registry[Layers] = Registry("benchmark's layers")


def parameters(benchmark: str, model: dict[str, Any], features: int) -> int:
    """Parameters with a gradient.

    Raises:
        StudyError: the benchmark's layers are not registered here.
    """
    if benchmark not in LAYERS:
        raise StudyError(f"the layers of {benchmark} are not in scripts/study/workloads/operations.py; add them")
    return sum(layer.parameters for layer in LAYERS[benchmark](model, features))


def forward_flop(benchmark: str, model: dict[str, Any], features: int) -> int | None:
    """Operations of the forward pass on one sample; None if the benchmark's layers are not registered."""
    if benchmark not in LAYERS:
        return None
    return 2 * sum(layer.multiply_adds for layer in LAYERS[benchmark](model, features))


def training_flop(benchmark: str, model: dict[str, Any], features: int) -> int | None:
    """Operations of the forward and the backward pass on one sample.

    Args:
        benchmark: its name.
        model: ``model`` in its YAML.
        features: elements of a sample, as in the run record's ``workload``.

    Returns:
        The number of operations (FLOP); None if the benchmark's layers are not registered here.
    """
    forward = forward_flop(benchmark, model, features)
    return None if forward is None else 3 * forward - 2 * LAYERS[benchmark](model, features)[0].multiply_adds


def _dense(*widths: int) -> list[Layer]:
    """Dense layers from the width of their input to that of their output."""
    return [Layer(1, inputs, outputs) for inputs, outputs in pairwise(widths)]


@LAYERS.register("nt3")
def _nt3(model: dict[str, Any], features: int) -> list[Layer]:
    length, channels, found = features, 1, []
    for layer in model["convolutions"]:
        length = (length - layer["width"]) // layer["stride"] + 1
        found.append(Layer(length, layer["width"] * channels, layer["filters"]))
        length, channels = length // layer["pool"], layer["filters"]
    return found + _dense(length * channels, *model["dense"], model["classes"])


@LAYERS.register("p1b1")
def _p1b1(model: dict[str, Any], features: int) -> list[Layer]:
    encoder = model["encoder"]
    return _dense(features, *encoder, model["bottleneck"], *reversed(encoder), features)


@LAYERS.register("p1b2")
def _p1b2(model: dict[str, Any], features: int) -> list[Layer]:
    return _dense(features, *model["dense"], model["classes"])


@LAYERS.register("p1b3")
def _p1b3(model: dict[str, Any], features: int) -> list[Layer]:
    return _dense(features + 1, *model["dense"], 1)  # the concentration is one more input


def _convolution(side: int, width: int, *channels: int) -> list[Layer]:
    """Convolutions of width x width that keep ``side`` pixels, from the first channels to the last."""
    return [Layer(side**2, width**2 * inputs, outputs) for inputs, outputs in pairwise(channels)]


def _normalised(others: int, layers: list[Layer]) -> list[Layer]:
    """The same layers with batch normalisation, and with so many trained values of an output beside its weights."""
    return [replace(layer, others=others, is_normalised=True) for layer in layers]


@LAYERS.register("lenet")
def _lenet(model: dict[str, Any], features: int) -> list[Layer]:
    side, channels = model["image_size"], model["channels"]
    found = _convolution(side, 5, channels, 32) + _convolution(side // 2, 5, 32, 64)
    return found + _dense((side // 2 // 2) ** 2 * 64, 1024, model["classes"])


@LAYERS.register("lenet_classic")
def _lenet_classic(model: dict[str, Any], features: int) -> list[Layer]:
    first = model["image_size"] - 4
    second = first // 2 - 4
    found = _convolution(first, 5, model["channels"], 6) + _convolution(second, 5, 6, 16)
    return found + _dense((second // 2) ** 2 * 16, 120, 84, model["classes"])


def _alexnet(padding: int, *last_filters: int) -> Layers:
    """AlexNet with so many pixels around the image, and so many filters in its last three convolutions."""

    def layers(model: dict[str, Any], features: int) -> list[Layer]:
        first = (model["image_size"] + 2 * padding - 11) // 4 + 1
        second, third, last = (_pooled(first, times) for times in (1, 2, 3))
        found = _convolution(first, 11, model["channels"], 64) + _convolution(second, 5, 64, 192)
        found += _convolution(third, 3, 192, *last_filters)
        return found + _dense(last**2 * last_filters[-1], 4096, 4096, model["classes"])

    return layers


LAYERS.add("alexnet", _alexnet(0, 384, 384, 256))
LAYERS.add("alexnet_one_tower", _alexnet(2, 384, 256, 256))


def _pooled(side: int, times: int) -> int:
    """The side after so many poolings of width 3 and stride 2 without padding."""
    return side if times == 0 else _pooled((side - 3) // 2 + 1, times - 1)


@LAYERS.register("vgg_a")
def _vgg_a(model: dict[str, Any], features: int) -> list[Layer]:
    side, channels, found = model["image_size"], model["channels"], []
    for block in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        found += _convolution(side, 3, channels, *block)
        side, channels = side // 2, block[-1]
    return found + _dense(side**2 * channels, 4096, 4096, model["classes"])


def _inception(third_branch: int) -> Layers:
    """Inception V1 with filters of this width in the third branch."""

    def layers(model: dict[str, Any], features: int) -> list[Layer]:
        side = _halved(model["image_size"])
        found = _convolution(side, 7, model["channels"], 64)
        side = _halved(side)
        found += _convolution(side, 1, 64, 64) + _convolution(side, 3, 64, 192)
        side, channels = _halved(side), 192
        for filters in MODULES:
            if filters is None:
                side = _halved(side)
                continue
            one, before_second, second, before_third, third, after_pooling = filters
            found += _convolution(side, 1, channels, one) + _convolution(side, 1, channels, after_pooling)
            found += _convolution(side, 1, channels, before_second) + _convolution(side, 3, before_second, second)
            found += _convolution(side, 1, channels, before_third)
            found += _convolution(side, third_branch, before_third, third)
            channels = one + second + third + after_pooling
        return _normalised(SHIFT, found) + _dense(channels, model["classes"])

    return layers


LAYERS.add("inception_v1", _inception(inception_v1.Workload.third_branch))
LAYERS.add("googlenet", _inception(googlenet.Workload.third_branch))


def _halved(side: int) -> int:
    """The side after a stride of 2 with padding."""
    return -(-side // 2)


def resnet(others: int, *blocks: int) -> Layers:
    """A ResNet with so many blocks in its four stages; the stride is in the first convolution of a stage.

    others: trained values of a filter beside its weights.
    """

    def layers(model: dict[str, Any], features: int) -> list[Layer]:
        side = _halved(model["image_size"])
        found, side, channels = _convolution(side, 7, model["channels"], 64), _halved(side), 64
        for stage, number in enumerate(blocks):
            width = 64 << stage
            side = side if stage == 0 else _halved(side)
            for block in range(number):
                shortcut = _convolution(side, 1, channels, 4 * width) if block == 0 else []
                found += shortcut + _convolution(side, 1, channels, width) + _convolution(side, 3, width, width)
                found += _convolution(side, 1, width, 4 * width)
                channels = 4 * width
        return _normalised(others, found) + _dense(channels, model["classes"])

    return layers


LAYERS.add("resnet50", resnet(BIAS + SHIFT_AND_SCALE, 3, 4, 6, 3))
LAYERS.add("resnet101", resnet(BIAS + SHIFT_AND_SCALE, 3, 4, 23, 3))
