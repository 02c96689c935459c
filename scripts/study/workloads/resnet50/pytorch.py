"""ResNet-50 in PyTorch, with the layers and constants of ``tf_keras.applications``."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from study.workloads import resnet50
from study.workloads.images import BATCH_NORM_DECAY
from study.workloads.images.pytorch import ImageBenchmark, output
from study.workloads.pytorch import BatchNorm, ChannelsFirst, Convolution, configure_layer

BLOCKS = (3, 4, 6, 3)  # of the four stages


class Benchmark(resnet50.Workload, ImageBenchmark):
    """ResNet-50 with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model; a stage's stride is in its first convolution, and all convolutions have biases."""
        model = self.spec["model"]
        stack: list[nn.Module] = [ChannelsFirst(), nn.ZeroPad2d(3), *_make_convolution(model, shape[2], 64, 7, 2)]
        stack += [nn.ReLU(), nn.ZeroPad2d(1), nn.MaxPool2d(3, 2)]
        channels = 64
        for stage, number in enumerate(BLOCKS):
            for block in range(number):
                stride = 2 if stage and not block else 1
                stack.append(Block(model, channels, 64 << stage, stride, has_shortcut=not block))
                channels = 4 * (64 << stage)
        return nn.Sequential(*stack, nn.AdaptiveAvgPool2d(1), nn.Flatten(), output(model, channels))


class Block(nn.Module):
    """A residual block: convolutions of 1 x 1, 3 x 3 and 1 x 1, added to the shortcut.

    Its layers are in Keras's order, by which they get their initial weights.
    """

    def __init__(self, model: Mapping[str, Any], inputs: int, width: int, stride: int, has_shortcut: bool) -> None:
        super().__init__()
        self.first = nn.Sequential(*_make_convolution(model, inputs, width, 1, stride))
        self.second = nn.Sequential(*_make_convolution(model, width, width, 3))
        self.shortcut = nn.Sequential(*_make_convolution(model, inputs, 4 * width, 1, stride)) if has_shortcut else None
        self.third = nn.Sequential(*_make_convolution(model, width, 4 * width, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the block: (samples, inputs, side, side) to (samples, 4 x width, side / stride, side / stride)."""
        residual = self.third(functional.relu(self.second(functional.relu(self.first(inputs)))))
        return functional.relu(residual + (self.shortcut(inputs) if self.shortcut else inputs))


def _make_convolution(
    model: Mapping[str, Any], inputs: int, filters: int, window: int, stride: int = 1
) -> tuple[nn.Module, nn.Module]:
    """(convolution without activation, its batch normalisation); padded if the window is 3 x 3."""
    padding = 1 if window == 3 else 0
    layer = configure_layer(Convolution(inputs, filters, window, stride, padding), l2=model["l2"])
    return layer, BatchNorm(filters, BATCH_NORM_DECAY)
