"""The layers of ResNets, for their operations per sample."""

from typing import Any

from study.workloads import resnet50
from study.workloads.operations import SHIFT_AND_SCALE, Layer, add_batch_norm, convolution, dense, halve_side


def list_resnet_layers(model: dict[str, Any], network: type[resnet50.Workload]) -> list[Layer]:
    """The layers of a ResNet with weights; a unit's convolution of its shortcut comes before its third."""
    side = halve_side(model["image_size"])
    stack, side, units = convolution(side, 7, model["channels"], 64), halve_side(side), list(network.list_units())
    for unit in units:
        stack += convolution(side, 1, unit.inputs, unit.width)
        side = halve_side(side) if unit.stride == 2 else side
        stack += convolution(side, 3, unit.width, unit.width)
        stack += convolution(side, 1, unit.inputs, unit.outputs) if unit.has_new_width else []
        stack += convolution(side, 1, unit.width, unit.outputs)
    return add_batch_norm(SHIFT_AND_SCALE, stack) + dense(units[-1].outputs, model["classes"])


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    return list_resnet_layers(model, resnet50.Workload)
