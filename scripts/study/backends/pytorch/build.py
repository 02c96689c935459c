"""A workload's module with its initial weights, which follow from the seed alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn

from study.core.errors import StudyError
from study.data.order import Purpose, draw_words
from study.experiment.definition import RunDefinition
from study.workloads.base import Benchmark
from study.workloads.pytorch import Weighted


def build_model(benchmark: Benchmark, run: RunDefinition, rank: int, shape: tuple[int, ...]) -> nn.Module:
    """Build the benchmark's module, on the CPU, with the initial weights of a rank.

    They depend on repeat and rank: ranks differ until the broadcast. shape: of one sample's input.

    Raises:
        StudyError: it is no module, or has none of the layers that a key is about.
    """
    seed = run.derived.seed + rank
    seed_generators(seed, 0)  # of weights that layers draw themselves
    random.seed(run.derived.seed)  # what is drawn otherwise may become a constant, which no broadcast makes equal
    np.random.seed(run.derived.seed % (1 << 32))
    model = benchmark.build_model(shape)
    if not isinstance(model, nn.Module):
        raise StudyError(
            f"{type(benchmark).__module__}: build_model returns {type(model).__name__}, expected a torch.nn.Module"
        )
    if any(isinstance(each, nn.parameter.UninitializedParameter) for each in model.parameters()):
        raise StudyError(f"{type(benchmark).__module__}: the model has lazy layers; give their sizes, known from shape")
    layers = [each for each in model.modules() if isinstance(each, Weighted)]
    for number, layer in enumerate(layers):
        _set_initial_weights(layer, seed, number)
    if momentum := run.parameters.get("batch_norm_momentum", 0):
        _set_batch_norm_momentum(model, momentum, run)
    channels_last: Any = {"memory_format": torch.channels_last}  # PyTorch's types lack it
    return model.to(**channels_last)


def seed_generators(seed: int, epoch: int) -> None:
    """Seed the generators from which layers draw in an epoch, as for dropout: a resumed run draws the same again."""
    drawn = int(draw_words(seed, Purpose.DROPOUT, epoch, 1)[0])
    torch.manual_seed(drawn >> 1)
    random.seed(drawn)
    np.random.seed(drawn >> 32)


@torch.no_grad()
def _set_initial_weights(layer: Weighted, seed: int, number: int) -> None:
    """Set the initial weights of a layer. number: of the layer in the model, from 0."""
    outputs, inputs, *window = layer.weight.shape
    kernel = torch.from_numpy(layer.initial((*window, inputs, outputs), seed, number))
    axes = kernel.dim() - 1, kernel.dim() - 2, *range(kernel.dim() - 2)
    layer.weight.copy_(kernel.permute(axes))
    if layer.bias is not None:
        layer.bias.zero_()


def _set_batch_norm_momentum(model: nn.Module, momentum: float, run: RunDefinition) -> None:
    """Set the momentum of all layers of batch normalisation; raises `StudyError` if there are none."""
    layers = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._NormBase)]
    if not layers:
        raise StudyError(
            f"batch_norm_momentum: the model of benchmark {run.benchmark['name']} has no layer of batch normalisation; "
            "leave it out"
        )
    for layer in layers:
        layer.momentum = 1 - momentum
