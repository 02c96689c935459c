"""Floating-point operations of training on one sample, counted from the shapes of a model's layers.

The rule: a dense layer or a convolution has two operations, a multiplication and an addition, per weight and position
in its forward pass. Its backward pass has twice as many: the gradients of its weights and those of its input. The first
layer needs no gradient of its input. Everything else is not counted: biases, activations, pooling, dropout, the loss,
regularisation and the optimizer's update, which together are below 1 % at full width (the update is per step).

These are the operations that the model needs, whatever the hardware executes. The benchmarks' own modules are part of
the training code, whose version a count must not change; so the counts are here.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from study.core.registry import Registry
from study.models import googlenet, inception_v1
from study.models.inception_v1 import MODULES

Layers = Callable[[dict[str, Any], int], list[int]]
# From (``model`` of the benchmark's YAML, features of a sample) to each layer's multiply-adds in the forward pass.
LAYERS: Registry[Layers] = Registry("benchmark's layers")


def forward_flop(benchmark: str, model: dict[str, Any], features: int) -> int | None:
    """Operations of the forward pass on one sample; None if the benchmark's layers are not registered."""
    return 2 * sum(LAYERS[benchmark](model, features)) if benchmark in LAYERS else None


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
    return None if forward is None else 3 * forward - 2 * LAYERS[benchmark](model, features)[0]


def _dense(*widths: int) -> list[int]:
    """Multiply-adds of dense layers, from the width of their input to that of their output."""
    return [inputs * outputs for inputs, outputs in pairwise(widths)]


@LAYERS.register("nt3")
def _nt3(model: dict[str, Any], features: int) -> list[int]:
    length, channels, found = features, 1, []
    for layer in model["convolutions"]:
        length = (length - layer["width"]) // layer["stride"] + 1
        found.append(length * layer["width"] * channels * layer["filters"])
        length, channels = length // layer["pool"], layer["filters"]
    return found + _dense(length * channels, *model["dense"], model["classes"])


@LAYERS.register("p1b1")
def _p1b1(model: dict[str, Any], features: int) -> list[int]:
    encoder = model["encoder"]
    return _dense(features, *encoder, model["bottleneck"], *reversed(encoder), features)


@LAYERS.register("p1b2")
def _p1b2(model: dict[str, Any], features: int) -> list[int]:
    return _dense(features, *model["dense"], model["classes"])


@LAYERS.register("p1b3")
def _p1b3(model: dict[str, Any], features: int) -> list[int]:
    return _dense(features + 1, *model["dense"], 1)  # the concentration is one more input


def _convolution(side: int, width: int, *channels: int) -> list[int]:
    """Multiply-adds of convolutions of width x width that keep ``side`` pixels, from the first channels to the last."""
    return [side**2 * width**2 * inputs * outputs for inputs, outputs in pairwise(channels)]


@LAYERS.register("lenet")
def _lenet(model: dict[str, Any], features: int) -> list[int]:
    side, channels = model["image_size"], model["channels"]
    found = _convolution(side, 5, channels, 32) + _convolution(side // 2, 5, 32, 64)
    return found + _dense((side // 2 // 2) ** 2 * 64, 1024, model["classes"])


@LAYERS.register("lenet_classic")
def _lenet_classic(model: dict[str, Any], features: int) -> list[int]:
    first = model["image_size"] - 4
    second = first // 2 - 4
    found = _convolution(first, 5, model["channels"], 6) + _convolution(second, 5, 6, 16)
    return found + _dense((second // 2) ** 2 * 16, 120, 84, model["classes"])


def _alexnet(padding: int, *last_filters: int) -> Layers:
    """AlexNet with so many pixels around the image, and so many filters in its last three convolutions."""

    def layers(model: dict[str, Any], features: int) -> list[int]:
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
def _vgg_a(model: dict[str, Any], features: int) -> list[int]:
    side, channels, found = model["image_size"], model["channels"], []
    for block in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        found += _convolution(side, 3, channels, *block)
        side, channels = side // 2, block[-1]
    return found + _dense(side**2 * channels, 4096, 4096, model["classes"])


def _inception(third_branch: int) -> Layers:
    """Inception V1 with filters of this width in the third branch."""

    def layers(model: dict[str, Any], features: int) -> list[int]:
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
        return found + _dense(channels, model["classes"])

    return layers


LAYERS.add("inception_v1", _inception(inception_v1.Benchmark.third_branch))
LAYERS.add("googlenet", _inception(googlenet.Benchmark.third_branch))


def _halved(side: int) -> int:
    """The side after a stride of 2 with padding."""
    return -(-side // 2)


def _resnet(*blocks: int) -> Layers:
    """A ResNet with so many blocks in its four stages; the stride is in the first convolution of a stage."""

    def layers(model: dict[str, Any], features: int) -> list[int]:
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
        return found + _dense(channels, model["classes"])

    return layers


LAYERS.add("resnet50", _resnet(3, 4, 6, 3))
LAYERS.add("resnet101", _resnet(3, 4, 23, 3))
