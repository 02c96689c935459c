"""LeNet-5 in PyTorch."""

from torch import nn

from study.workloads import lenet_classic
from study.workloads.images.pytorch import ImageBenchmark, compute_side, convolution, hidden, output
from study.workloads.pytorch import ChannelsFirst, Flatten


class Benchmark(lenet_classic.Workload, ImageBenchmark):
    """LeNet-5 with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model: convolutions of 6 and 16 filters, each with pooling; 120 and 84 units; classes."""
        model, last = self.spec["model"], compute_side(shape[0], (5, 1), (2, 2), (5, 1), (2, 2))
        return nn.Sequential(
            ChannelsFirst(),
            convolution(model, shape[2], 6, 5, padding="valid"),
            nn.MaxPool2d(2),
            convolution(model, 6, 16, 5, padding="valid"),
            nn.MaxPool2d(2),
            Flatten(),
            hidden(model, last**2 * 16, 120),
            hidden(model, 120, 84),
            output(model, 84),
        )
