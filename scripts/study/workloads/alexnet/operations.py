"""The layers of both AlexNets, for their operations per sample."""

from typing import Any

from study.workloads.operations import Layer, convolution, dense


def alexnet(model: dict[str, Any], padding: int, *last_filters: int) -> list[Layer]:
    """AlexNet with so many pixels around the image, and so many filters in its last three convolutions."""
    first = (model["image_size"] + 2 * padding - 11) // 4 + 1
    second, third, last = (_pooled(first, times) for times in (1, 2, 3))
    found = convolution(first, 11, model["channels"], 64) + convolution(second, 5, 64, 192)
    found += convolution(third, 3, 192, *last_filters)
    return found + dense(last**2 * last_filters[-1], 4096, 4096, model["classes"])


def _pooled(side: int, times: int) -> int:
    """The side after so many poolings of width 3 and stride 2 without padding."""
    return side if times == 0 else _pooled((side - 3) // 2 + 1, times - 1)


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights."""
    return alexnet(model, 0, 384, 384, 256)
