"""The layers of LeNet, for its operations per sample."""

from typing import Any

from study.workloads.operations import Layer, convolution, dense


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    side, channels = model["image_size"], model["channels"]
    convolutions = convolution(side, 5, channels, 32) + convolution(side // 2, 5, 32, 64)
    return convolutions + dense((side // 2 // 2) ** 2 * 64, 1024, model["classes"])
