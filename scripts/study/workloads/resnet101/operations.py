"""The layers of ResNet-101, for its operations per sample."""

from typing import Any

from study.workloads.operations import BIAS, SHIFT_AND_SCALE, Layer
from study.workloads.resnet50.operations import resnet


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights."""
    return resnet(model, BIAS + SHIFT_AND_SCALE, 3, 4, 23, 3)
