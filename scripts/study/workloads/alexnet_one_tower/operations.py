"""The layers of AlexNet with one tower, for its operations per sample."""

from typing import Any

from study.workloads.alexnet.operations import alexnet
from study.workloads.operations import Layer


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights."""
    return alexnet(model, 2, 384, 256, 256)
