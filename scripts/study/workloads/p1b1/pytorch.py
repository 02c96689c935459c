"""P1B1 in PyTorch: an autoencoder of dense layers."""

from itertools import pairwise

from torch import nn

from study.workloads import base, p1b1
from study.workloads.pytorch import Correlation, Dense, Metric


class Benchmark(p1b1.Workload, base.Benchmark):
    """P1B1 with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model: dense layers down to the bottleneck and up again."""
        model = self.spec["model"]
        widths = [shape[0], *model["encoder"], model["bottleneck"], *reversed(model["encoder"])]
        hidden = [Dense(inputs, outputs, model["activation"]) for inputs, outputs in pairwise(widths)]
        return nn.Sequential(*hidden, Dense(widths[-1], shape[0], model["output_activation"], is_output=True))

    def metrics(self) -> list[Metric]:
        """The metrics of `metric_names`."""
        return [Correlation("correlation")]
