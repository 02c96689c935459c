"""The layers of ResNet-101, for its operations per sample."""

from typing import Any

from study.workloads import resnet101
from study.workloads.operations import Layer
from study.workloads.resnet50.operations import list_resnet_layers


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    return list_resnet_layers(model, resnet101.Workload)
