"""The layers of AlexNet with one tower, for its operations per sample."""

from typing import Any

from study.workloads.alexnet.operations import list_alexnet_layers
from study.workloads.operations import Layer


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    return list_alexnet_layers(model, 2, 384, 256, 256)
