"""The layers of both AlexNets, for their operations per sample."""

from typing import Any

from study.workloads.operations import Layer, convolution, dense


def list_alexnet_layers(model: dict[str, Any], padding: int, *last_filters: int) -> list[Layer]:
    """The layers of AlexNet. padding: pixels around the image. last_filters: of the last three convolutions."""
    first = (model["image_size"] + 2 * padding - 11) // 4 + 1
    second, third, last = (_compute_pooled_side(first, times) for times in (1, 2, 3))
    stack = convolution(first, 11, model["channels"], 64) + convolution(second, 5, 64, 192)
    stack += convolution(third, 3, 192, *last_filters)
    return stack + dense(last**2 * last_filters[-1], 4096, 4096, model["classes"])


def _compute_pooled_side(side: int, times: int) -> int:
    """Pixels of a map's side after ``times`` poolings of width 3 and stride 2 without padding."""
    return side if times == 0 else _compute_pooled_side((side - 3) // 2 + 1, times - 1)


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    return list_alexnet_layers(model, 0, 384, 384, 256)
