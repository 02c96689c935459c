"""P1B2 in PyTorch: a multilayer perceptron."""

from itertools import pairwise

from torch import nn

from study.workloads import base, p1b2
from study.workloads.pytorch import Dense, configure_layer


class Benchmark(p1b2.Workload, base.Benchmark):
    """P1B2 with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model: dense layers with L2 regularisation of kernels and activities."""
        model = self.spec["model"]
        widths = [shape[0], *model["dense"]]
        hidden = [
            configure_layer(Dense(inputs, outputs, model["activation"]), l2=model["l2"], activity_l2=model["l2"])
            for inputs, outputs in pairwise(widths)
        ]
        return nn.Sequential(*hidden, Dense(widths[-1], model["classes"], is_output=True))
