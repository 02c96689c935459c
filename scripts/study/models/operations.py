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
