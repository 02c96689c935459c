"""AlexNet in PyTorch, as TF-Slim has it."""

from torch import nn

from study.workloads import alexnet
from study.workloads.images.pytorch import ImageBenchmark, compute_side, convolution, hidden, output
from study.workloads.pytorch import ChannelsFirst, Flatten


class Benchmark(alexnet.Workload, ImageBenchmark):
    """AlexNet with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model: five convolutions, two dense layers of 4,096 units with dropout, classes."""
        model, last = self.spec["model"], compute_side(shape[0], (11, 4), (3, 2), (3, 2), (3, 2))
        return nn.Sequential(
            ChannelsFirst(),
            convolution(model, shape[2], 64, 11, stride=4, padding="valid"),
            nn.MaxPool2d(3, 2),
            convolution(model, 64, 192, 5),
            nn.MaxPool2d(3, 2),
            convolution(model, 192, 384, 3),
            convolution(model, 384, 384, 3),
            convolution(model, 384, 256, 3),
            nn.MaxPool2d(3, 2),
            Flatten(),
            hidden(model, last**2 * 256, 4096),
            nn.Dropout(model["dropout"]),
            hidden(model, 4096, 4096),
            nn.Dropout(model["dropout"]),
            output(model, 4096),
        )
