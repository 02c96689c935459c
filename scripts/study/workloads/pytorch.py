"""Layers with Keras's defaults, and metrics, that the PyTorch models of several workloads share.

A model takes inputs as the sample source has them, with the channels last. A classifier gives its outputs before the
last activation, see `study.backends.pytorch.losses_and_metrics`. The order of a flattened map is that of Keras, so that
a kernel is the transpose of the Keras model's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from study.workloads import base, initial_weights

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda values: values,
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softmax": functools.partial(functional.softmax, dim=-1),
}
Initial = Callable[..., Any]  # as `study.workloads.initial_weights.draw_glorot_uniform`


class Weighted(nn.Module):
    """A layer with a kernel and a bias, their initial values, and penalties on kernel and outputs.

    initial: of the kernel; biases begin with 0. l2: factor of the squares of the kernel's values. activity_l2: factor
    of the squares of the outputs, divided by the samples of the batch. The penalties are added to the loss.
    """

    weight: Any  # a parameter
    bias: Any  # a parameter, or None
    initial: Initial = staticmethod(initial_weights.draw_glorot_uniform)
    l2 = activity_l2 = 0.0
    activity: Tensor | None = None  # penalty on the outputs of the last batch

    def reset_parameters(self) -> None:
        """Do nothing: the trainer draws the weights, and PyTorch's own would only take time."""

    def penalty(self) -> Tensor | None:
        """Sum of the layer's penalties for the last batch; None without any."""
        total = self.activity
        if self.l2:
            kernel_penalty = self.l2 * self.weight.square().sum()
            total = kernel_penalty if total is None else total + kernel_penalty
        return total

    def activate(self, outputs: Tensor, activation: str) -> Tensor:
        """Apply an activation to ``outputs``, and keep the penalty on the result."""
        outputs = ACTIVATIONS[activation](outputs)
        if self.activity_l2:
            self.activity = self.activity_l2 * outputs.square().sum() / len(outputs)
        return outputs


class Dense(Weighted, nn.Linear):
    """A dense layer. is_output: whether it is the model's last one, which computes in float32 at any precision."""

    def __init__(self, inputs: int, outputs: int, activation: str = "linear", is_output: bool = False) -> None:
        super().__init__(inputs, outputs)
        self.activation, self.is_output = activation, is_output

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the layer: (samples, inputs) to (samples, outputs)."""
        if not self.is_output:
            return self.activate(super().forward(inputs), self.activation)
        with torch.autocast(inputs.device.type, enabled=False):
            return self.activate(super().forward(inputs.float()), self.activation)


class Convolution(Weighted, nn.Conv2d):
    """A convolution of (samples, channels, height, width)."""

    def __init__(
        self,
        inputs: int,
        filters: int,
        window: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: str | int = "valid",
        activation: str = "linear",
        bias: bool = True,
    ) -> None:
        super().__init__(inputs, filters, window, stride, padding, bias=bias)
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the convolution and its activation."""
        return self.activate(super().forward(inputs), self.activation)


def configure_layer(layer: Weighted, initial: Initial | None = None, l2: float = 0.0, activity_l2: float = 0.0) -> Any:
    """Set a layer's initial weights and penalties, see `Weighted`, and return it."""
    if initial is not None:
        layer.initial = initial
    layer.l2, layer.activity_l2 = l2, activity_l2
    return layer


class ChannelsFirst(nn.Module):
    """(samples, height, width, channels), or (samples, width, channels), to (samples, channels, height, width).

    Nothing is copied: it is PyTorch's memory format ``channels_last``.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Move the channels to the front; a series becomes an image of height 1."""
        return (inputs.unsqueeze(1) if inputs.dim() == 3 else inputs).permute(0, 3, 1, 2)


class Flatten(nn.Module):
    """(samples, channels, height, width) to (samples, values), in Keras's order."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Flatten the maps; nothing is copied if the memory format is ``channels_last``."""
        return inputs.permute(0, 2, 3, 1).flatten(1)


class Metric:
    """A metric of an epoch. name: that of the Keras model's metric."""

    name: str

    def reset(self) -> None:
        """Forget all batches, before an epoch."""

    def add(self, right: Tensor, outputs: Tensor) -> None:
        """Add a batch. right: correct outputs, float32 (samples, outputs). outputs: of the model."""

    def value(self) -> float:
        """The metric over all batches since `reset`."""
        raise NotImplementedError


class Mean(Metric):
    """The mean over all samples of what a function gives of a batch."""

    def __init__(self, name: str, compute: Callable[[Tensor, Tensor], Tensor]) -> None:
        """compute: gives values of each sample, or one of the batch, which then counts for each of its samples."""
        self.name, self._compute = name, compute
        self._sums: list[Tensor] = []
        self._number = 0

    def reset(self) -> None:
        """Forget all batches, before an epoch."""
        self._sums, self._number = [], 0

    def add(self, right: Tensor, outputs: Tensor) -> None:
        """Add a batch."""
        values = self._compute(right, outputs).detach()
        self._sums.append(values.float().sum() * (len(right) / values.numel()))
        self._number += len(right)

    def value(self) -> float:
        """The mean over all samples since `reset`."""
        return float(torch.stack(self._sums).double().sum() / self._number)


def build_accuracy(threshold: float = 0.5) -> Mean:
    """A metric ``accuracy``: the share of samples in the right class, as Keras has it.

    threshold: above which a model's only output stands for class 1; before its sigmoid this is 0.
    """

    def is_right(right: Tensor, outputs: Tensor) -> Tensor:
        if outputs.shape[1] == 1:
            return (right == (outputs > threshold)).squeeze(1)
        return right.argmax(1) == outputs.argmax(1)

    return Mean("accuracy", is_right)


class OfSums(Metric):
    """A metric that is computed from sums over all samples of an epoch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._parts: list[Tensor] = []  # of each batch its sums

    def reset(self) -> None:
        """Forget all batches, before an epoch."""
        self._parts = []

    def _sum_batches(self) -> list[float]:
        """The sums over all batches since `reset`."""
        totals: list[float] = torch.stack(self._parts).sum(0).tolist()
        return totals


class R2(OfSums):
    """The coefficient of determination over all values of all samples of an epoch, of all outputs together.

    1 - squared errors / squared deviations from the mean; 0 if all right values are the same.
    """

    def add(self, right: Tensor, outputs: Tensor) -> None:
        """Add the batch's sums of values, squares and squared errors."""
        right, outputs = right.double(), outputs.detach().double()
        sums = right.sum(), right.square().sum(), (right - outputs).square().sum()
        self._parts.append(torch.stack([_count_values(right), *sums]))

    def value(self) -> float:
        """The coefficient over all batches since `reset`."""
        number, total, squares, errors = self._sum_batches()
        deviations = _compute_squared_deviations(number, total, squares)
        return 1 - errors / deviations if deviations else 0.0


class Correlation(OfSums):
    """Pearson's correlation over all values of all samples of an epoch; 0 if one side has no variance."""

    def add(self, right: Tensor, outputs: Tensor) -> None:
        """Add the batch's sums of values, squares and products."""
        right, outputs = right.double(), outputs.detach().double()
        terms = right, outputs, right.square(), outputs.square(), right * outputs
        self._parts.append(torch.stack([_count_values(right), *(each.sum() for each in terms)]))

    def value(self) -> float:
        """The correlation over all batches since `reset`."""
        number, right, predicted, squares, others, products = self._sum_batches()
        norm = math.sqrt(
            _compute_squared_deviations(number, right, squares) * _compute_squared_deviations(number, predicted, others)
        )
        return (products - right * predicted / number) / norm if norm else 0.0


def _count_values(values: Tensor) -> Tensor:
    """Number of values, as a tensor like their sum."""
    return torch.full_like(values.sum(), values.numel())


def _compute_squared_deviations(number: float, total: float, squares: float) -> float:
    """Sum of squared deviations from the mean, from the number of values, their sum and that of their squares."""
    deviations = squares - total**2 / number
    return 0.0 if deviations <= base.FLAT * squares else deviations
