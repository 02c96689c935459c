"""ResNet-50 in PyTorch, as TF-Slim has it."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from study.workloads import initial_weights, resnet50
from study.workloads.images import BATCH_NORM_DECAY
from study.workloads.images.pytorch import ImageBenchmark, output
from study.workloads.operations import halve_side
from study.workloads.pytorch import ChannelsFirst, Convolution, configure_layer


class Benchmark(resnet50.Workload, ImageBenchmark):
    """ResNet-50 with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model: a convolution, pooling, the residual units, the mean of each map."""
        model = self.spec["model"]
        top, left = (halve_side(side) % 2 for side in shape[:2])  # the border of Keras's padding "same"
        stack: list[nn.Module] = [ChannelsFirst(), *_make_convolution(model, shape[2], 64, 7, 2), nn.ReLU()]
        stack += [nn.ZeroPad2d((left, 1, top, 1)), nn.MaxPool2d(3, 2)]
        units = list(self.list_units())
        stack += [ResidualUnit(model, unit) for unit in units]
        return nn.Sequential(*stack, nn.AdaptiveAvgPool2d(1), nn.Flatten(), output(model, units[-1].outputs))


class ResidualUnit(nn.Module):
    """A residual unit. Its layers are in the Keras model's order, by which they get their initial weights."""

    def __init__(self, model: Mapping[str, Any], unit: resnet50.Unit) -> None:
        super().__init__()
        self.first = nn.Sequential(*_make_convolution(model, unit.inputs, unit.width, 1))
        self.second = nn.Sequential(*_make_convolution(model, unit.width, unit.width, 3, unit.stride))
        self.shortcut: nn.Module = nn.MaxPool2d(1, unit.stride)  # of stride 1 it changes nothing
        if unit.has_new_width:
            self.shortcut = nn.Sequential(*_make_convolution(model, unit.inputs, unit.outputs, 1, unit.stride))
        self.third = nn.Sequential(*_make_convolution(model, unit.width, unit.outputs, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the unit: (samples, inputs, side, side) to (samples, outputs, side / stride, side / stride)."""
        residual = self.third(functional.relu(self.second(functional.relu(self.first(inputs)))))
        return functional.relu(residual + self.shortcut(inputs))


def _make_convolution(
    model: Mapping[str, Any], inputs: int, filters: int, window: int, stride: int = 1
) -> tuple[nn.Module, nn.Module]:
    """(convolution without bias and activation, padded alike on all sides; its batch normalisation)."""
    layer = Convolution(inputs, filters, window, stride, window // 2, bias=False)
    configure_layer(layer, initial_weights.draw_he_normal, l2=model["l2"])
    return layer, nn.BatchNorm2d(filters, eps=resnet50.BATCH_NORM_EPSILON, momentum=1 - BATCH_NORM_DECAY)
