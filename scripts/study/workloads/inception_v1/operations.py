"""The layers of Inception V1 and GoogLeNet, for their operations per sample."""

from typing import Any

from study.workloads.inception_v1 import MODULES, Workload
from study.workloads.operations import SHIFT, Layer, convolution, dense, halved, normalised


def inception(model: dict[str, Any], third_branch: int) -> list[Layer]:
    """Inception V1 with filters of this width in the third branch."""
    side = halved(model["image_size"])
    found = convolution(side, 7, model["channels"], 64)
    side = halved(side)
    found += convolution(side, 1, 64, 64) + convolution(side, 3, 64, 192)
    side, channels = halved(side), 192
    for filters in MODULES:
        if filters is None:
            side = halved(side)
            continue
        one, before_second, second, before_third, third, after_pooling = filters
        found += convolution(side, 1, channels, one) + convolution(side, 1, channels, after_pooling)
        found += convolution(side, 1, channels, before_second) + convolution(side, 3, before_second, second)
        found += convolution(side, 1, channels, before_third)
        found += convolution(side, third_branch, before_third, third)
        channels = one + second + third + after_pooling
    return normalised(SHIFT, found) + dense(channels, model["classes"])


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights."""
    return inception(model, Workload.third_branch)
