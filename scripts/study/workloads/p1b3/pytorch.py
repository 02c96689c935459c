"""P1B3 in PyTorch: a multilayer perceptron for regression."""

import functools

from torch import Tensor, nn

from study.workloads import base, initial_weights, p1b3
from study.workloads.pytorch import R2, Dense, Mean, Metric, configure_layer


class Benchmark(p1b3.Workload, base.Benchmark):
    """P1B3 with its PyTorch model."""

    def build_model(self, shape: tuple[int, ...]) -> nn.Module:
        """Build the PyTorch model: dense layers with dropout, one output; the concentration is one more input."""
        model = self.spec["model"]
        initial = functools.partial(initial_weights.draw_normal, deviation=model["initial_stddev"])
        stack: list[nn.Module] = []
        inputs = shape[0]
        for units in model["dense"]:
            stack += [configure_layer(Dense(inputs, units, model["activation"]), initial), nn.Dropout(model["dropout"])]
            inputs = units
        return nn.Sequential(*stack, Dense(inputs, 1, is_output=True))

    def metrics(self) -> list[Metric]:
        """The metrics of `metric_names`."""
        return [R2("r2"), Mean("growth_sign_accuracy", growth_sign_accuracy)]


def growth_sign_accuracy(right: Tensor, outputs: Tensor) -> Tensor:
    """For each sample whether measured and predicted growth are both negative, or both not."""
    return ((right < 0) == (outputs < 0)).float().mean(dim=1)
