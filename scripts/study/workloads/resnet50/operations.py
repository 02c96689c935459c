"""The layers of ResNets, for their operations per sample."""

from typing import Any

from study.workloads.operations import BIAS, SHIFT_AND_SCALE, Layer, convolution, dense, halved, normalised


def resnet(model: dict[str, Any], others: int, *blocks: int) -> list[Layer]:
    """A ResNet with so many blocks in its four stages; the stride is in the first convolution of a stage.

    others: trained values of a filter beside its weights.
    """
    side = halved(model["image_size"])
    found, side, channels = convolution(side, 7, model["channels"], 64), halved(side), 64
    for stage, number in enumerate(blocks):
        width = 64 << stage
        side = side if stage == 0 else halved(side)
        for block in range(number):
            shortcut = convolution(side, 1, channels, 4 * width) if block == 0 else []
            found += shortcut + convolution(side, 1, channels, width) + convolution(side, 3, width, width)
            found += convolution(side, 1, width, 4 * width)
            channels = 4 * width
    return normalised(others, found) + dense(channels, model["classes"])


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights."""
    return resnet(model, BIAS + SHIFT_AND_SCALE, 3, 4, 6, 3)
