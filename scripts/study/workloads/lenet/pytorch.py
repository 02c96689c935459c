"""LeNet in PyTorch, as TF-Slim has it."""

from torch import nn

from study.workloads import lenet
from study.workloads.images.pytorch import ImageBenchmark, convolution, hidden, output
from study.workloads.pytorch import ChannelsFirst, Flatten


class Benchmark(lenet.Workload, ImageBenchmark):
    """LeNet with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model: convolutions of 32 and 64 filters with pooling; 1,024 units, dropout, classes."""
        model, (height, width, channels) = self.spec["model"], shape
        return nn.Sequential(
            ChannelsFirst(),
            convolution(model, channels, 32, 5),
            nn.MaxPool2d(2),
            convolution(model, 32, 64, 5),
            nn.MaxPool2d(2),
            Flatten(),
            hidden(model, (height // 4) * (width // 4) * 64, 1024),
            nn.Dropout(model["dropout"]),
            output(model, 1024),
        )
