"""NT3 in PyTorch: a 1D convolutional network."""

from torch import nn

from study.workloads import base, nt3
from study.workloads.pytorch import ChannelsFirst, Convolution, Dense, Flatten


class Benchmark(nt3.Workload, base.Benchmark):
    """NT3 with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model: convolutions with max pooling, then dense layers with dropout, then the classes.

        The series is an image of height 1, since PyTorch has no ``channels_last`` for series.
        """
        model, activation = self.spec["model"], self.spec["model"]["activation"]
        stack: list[nn.Module] = [ChannelsFirst()]
        length, channels = shape
        for layer in model["convolutions"]:
            filters, width, stride, pool = (layer[key] for key in ("filters", "width", "stride", "pool"))
            stack.append(Convolution(channels, filters, (1, width), (1, stride), activation=activation))
            stack += [nn.MaxPool2d((1, pool))] if pool > 1 else []
            length, channels = ((length - width) // stride + 1) // pool, filters
        stack.append(Flatten())
        inputs = length * channels
        for units in model["dense"]:
            stack += [Dense(inputs, units, activation), nn.Dropout(model["dropout"])]
            inputs = units
        return nn.Sequential(*stack, Dense(inputs, model["classes"], is_output=True))
