"""The layers of NT3, for its operations per sample."""

from typing import Any

from study.workloads.operations import Layer, dense


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    length, channels, convolutions = features, 1, []
    for layer in model["convolutions"]:
        length = (length - layer["width"]) // layer["stride"] + 1
        convolutions.append(Layer(length, layer["width"] * channels, layer["filters"]))
        length, channels = length // layer["pool"], layer["filters"]
    return convolutions + dense(length * channels, *model["dense"], model["classes"])
