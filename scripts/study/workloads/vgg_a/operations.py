"""The layers of VGG-A, for its operations per sample."""

from typing import Any

from study.workloads.operations import Layer, convolution, dense
from study.workloads.vgg_a import BLOCKS


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    side, channels, convolutions = model["image_size"], model["channels"], []
    for block in BLOCKS:
        convolutions += convolution(side, 3, channels, *block)
        side, channels = side // 2, block[-1]
    return convolutions + dense(side**2 * channels, 4096, 4096, model["classes"])
