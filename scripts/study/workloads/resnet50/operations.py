"""The layers of ResNets, for their operations per sample."""

from typing import Any

from study.workloads.operations import BIAS, SHIFT_AND_SCALE, Layer, add_batch_norm, convolution, dense, halve_side


def list_resnet_layers(model: dict[str, Any], others: int, *blocks: int) -> list[Layer]:
    """The layers of a ResNet. blocks: number of them in each of the four stages.

    The stride is in the first convolution of a stage. others: trained values of a filter beside its weights.
    """
    side = halve_side(model["image_size"])
    stack, side, channels = convolution(side, 7, model["channels"], 64), halve_side(side), 64
    for stage, number in enumerate(blocks):
        width = 64 << stage
        side = side if stage == 0 else halve_side(side)
        for block in range(number):
            shortcut = convolution(side, 1, channels, 4 * width) if block == 0 else []
            stack += shortcut + convolution(side, 1, channels, width) + convolution(side, 3, width, width)
            stack += convolution(side, 1, width, 4 * width)
            channels = 4 * width
    return add_batch_norm(others, stack) + dense(channels, model["classes"])


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    return list_resnet_layers(model, BIAS + SHIFT_AND_SCALE, 3, 4, 6, 3)
