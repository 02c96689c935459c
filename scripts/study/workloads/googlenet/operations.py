"""The layers of GoogLeNet, for its operations per sample."""

from typing import Any

from study.workloads.googlenet import Workload
from study.workloads.inception_v1.operations import list_inception_layers
from study.workloads.operations import Layer


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    return list_inception_layers(model, Workload.third_branch)
