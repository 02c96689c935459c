"""The layers of Inception V1 and GoogLeNet, for their operations per sample."""

from typing import Any

from study.workloads.inception_v1 import MODULES, Workload
from study.workloads.operations import SHIFT, Layer, add_batch_norm, convolution, dense, halve_side


def list_inception_layers(model: dict[str, Any], third_branch: int) -> list[Layer]:
    """The layers of Inception V1 with filters of this width in the modules' third branch."""
    side = halve_side(model["image_size"])
    stack = convolution(side, 7, model["channels"], 64)
    side = halve_side(side)
    stack += convolution(side, 1, 64, 64) + convolution(side, 3, 64, 192)
    side, channels = halve_side(side), 192
    for filters in MODULES:
        if filters is None:
            side = halve_side(side)
            continue
        first, before_second, second, before_third, third, after_pooling = filters
        stack += convolution(side, 1, channels, first) + convolution(side, 1, channels, after_pooling)
        stack += convolution(side, 1, channels, before_second) + convolution(side, 3, before_second, second)
        stack += convolution(side, 1, channels, before_third)
        stack += convolution(side, third_branch, before_third, third)
        channels = first + second + third + after_pooling
    return add_batch_norm(SHIFT, stack) + dense(channels, model["classes"])


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    return list_inception_layers(model, Workload.third_branch)
