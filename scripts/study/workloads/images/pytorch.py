"""What the PyTorch models of all workloads on images share: their metrics and layers."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from study.workloads import base, initial_weights
from study.workloads.images import TOP, TOP5_ACCURACY, ImageWorkload
from study.workloads.pytorch import Convolution, Dense, Mean, Metric, begun


class ImageBenchmark(ImageWorkload, base.Benchmark):
    """A benchmark on images. Its module adds `build_model`, and what its layers need."""

    def metrics(self) -> list[str | Metric]:
        """The metrics of `metric_names`."""
        return [Mean(TOP5_ACCURACY, in_top) if name == TOP5_ACCURACY else name for name in self.metric_names]


def in_top(right: Tensor, outputs: Tensor) -> Tensor:
    """For each sample whether fewer than `TOP` classes are more probable than the right one."""
    of_right = outputs.gather(1, right.argmax(1, keepdim=True))
    return (outputs > of_right).sum(1) < TOP


def convolution(
    model: Mapping[str, Any], inputs: int, filters: int, window: int, stride: int = 1, padding: str = "same"
) -> Any:
    """A convolution with ReLU, and initial weights for ReLU (He et al., arXiv:1502.01852)."""
    layer = Convolution(inputs, filters, window, stride, padding, "relu")
    return begun(layer, initial_weights.he_normal, l2=model["l2"])


def hidden(model: Mapping[str, Any], inputs: int, units: int) -> Any:
    """A dense layer with ReLU."""
    return begun(Dense(inputs, units, "relu"), initial_weights.he_normal, l2=model["l2"])


def output(model: Mapping[str, Any], inputs: int) -> Any:
    """The last layer: the classes before the softmax."""
    return begun(Dense(inputs, model["classes"], is_output=True), l2=model["l2"])


def sides(side: int, *layers: tuple[int, int]) -> int:
    """The side after layers without padding. layers: (window, stride) of each."""
    for window, stride in layers:
        side = (side - window) // stride + 1
    return side
