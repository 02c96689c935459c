"""Metrics and layers that the PyTorch models of all workloads on images share."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from study.workloads import base, initial_weights
from study.workloads.images import TOP, TOP5_ACCURACY, ImageWorkload
from study.workloads.pytorch import Convolution, Dense, Mean, Metric, configure_layer


class ImageBenchmark(ImageWorkload, base.Benchmark):
    """A benchmark on images with its metrics. Its module adds `build_model`."""

    def metrics(self) -> list[str | Metric]:
        """The metrics of `metric_names`."""
        return [Mean(TOP5_ACCURACY, is_in_top) if name == TOP5_ACCURACY else name for name in self.metric_names]


def is_in_top(right: Tensor, outputs: Tensor) -> Tensor:
    """Whether the right class of each sample is among the `TOP` most probable ones."""
    right_outputs = outputs.gather(1, right.argmax(1, keepdim=True))
    return (outputs > right_outputs).sum(1) < TOP


def convolution(
    model: Mapping[str, Any], inputs: int, filters: int, window: int, stride: int = 1, padding: str = "same"
) -> Any:
    """A convolution layer with ReLU, and initial weights for ReLU (He et al., arXiv:1502.01852)."""
    layer = Convolution(inputs, filters, window, stride, padding, "relu")
    return configure_layer(layer, initial_weights.draw_he_normal, l2=model["l2"])


def hidden(model: Mapping[str, Any], inputs: int, units: int) -> Any:
    """A hidden dense layer with ReLU, initial weights for ReLU, and L2."""
    return configure_layer(Dense(inputs, units, "relu"), initial_weights.draw_he_normal, l2=model["l2"])


def output(model: Mapping[str, Any], inputs: int) -> Any:
    """The last dense layer, which gives the classes before the softmax."""
    return configure_layer(Dense(inputs, model["classes"], is_output=True), l2=model["l2"])


def compute_side(side: int, *layers: tuple[int, int]) -> int:
    """Pixels of a map's side after layers without padding. layers: (window, stride) of each."""
    for window, stride in layers:
        side = (side - window) // stride + 1
    return side
