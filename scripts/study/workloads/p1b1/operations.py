"""The layers of P1B1, for its operations per sample."""

from typing import Any

from study.workloads.operations import Layer, dense


def layers(model: dict[str, Any], features: int) -> list[Layer]:
    """The layers with weights, in their order, for counts of operations and parameters."""
    encoder = model["encoder"]
    return dense(features, *encoder, model["bottleneck"], *reversed(encoder), features)
