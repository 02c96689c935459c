"""The layers of LeNet-5, for its operations per sample."""

from typing import Any

from study.workloads.operations import Layer, convolution, dense


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    first = model["image_size"] - 4
    second = first // 2 - 4
    convolutions = convolution(first, 5, model["channels"], 6) + convolution(second, 5, 6, 16)
    return convolutions + dense((second // 2) ** 2 * 16, 120, 84, model["classes"])
