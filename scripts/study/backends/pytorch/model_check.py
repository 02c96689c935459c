"""Whether the models of own benchmarks keep what the keys of a run promise, seen without training, before any run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from study import workloads
from study.backends.few_samples import few_samples
from study.backends.pytorch import build
from study.backends.pytorch.losses import loss
from study.backends.pytorch.metrics import made
from study.core.errors import StudyError
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition


def refusal(run: RunDefinition, shape: Mapping[str, int]) -> str | None:
    """Why ``run`` cannot be trained as it promises; None if nothing speaks against it.

    shape: of the dataset, see `study.experiment.study.Dataset`; its numbers of samples do not matter.

    Raises:
        Exception: of the benchmark's own code. It is the user's, so it may be anything.
    """
    benchmark = workloads.with_model(run.benchmark["name"], run.benchmark, run.framework)
    samples = few_samples(benchmark, run, shape)
    try:
        made(benchmark)
        first, second = (build.model(benchmark, run, rank, samples.shape) for rank in (0, 1))
        _check_gradients(first, run, samples)
        _check_same(first, second, samples)
    except StudyError as error:
        return str(error)
    return None


def _check_gradients(model: nn.Module, run: RunDefinition, samples: SampleSource) -> None:
    """Raise `StudyError` if a weight gets no gradient: DistributedDataParallel waits for all of them."""
    x, y = (torch.from_numpy(each) for each in samples.batch(np.arange(2)))
    outputs = model(x)
    if not isinstance(outputs, torch.Tensor) or outputs.shape != y.shape:
        found = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise StudyError(
            f"benchmark {run.benchmark['name']}: the model gives {found} for two samples, expected a tensor of shape "
            f"{tuple(y.shape)}, as of the outputs to learn"
        )
    loss(run.benchmark["loss"])(outputs.float(), y).backward()
    without = [name for name, each in model.named_parameters() if each.requires_grad and each.grad is None]
    if without:
        raise StudyError(
            f"benchmark {run.benchmark['name']}: the model's {', '.join(without[:3])} get no gradient, for which "
            "DistributedDataParallel would wait; use them, or set requires_grad to False"
        )


@torch.no_grad()
def _check_same(first: nn.Module, second: nn.Module, samples: SampleSource) -> None:
    """Raise `StudyError` if two ranks with the same weights compute different outputs."""
    x = torch.from_numpy(samples.batch(np.arange(2))[0])
    try:
        second.load_state_dict(first.state_dict())
    except RuntimeError:
        raise StudyError("two ranks build models with other weights; the model must not depend on the rank") from None
    one, other = (each.train(False)(x) for each in (first, second))
    if not torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise StudyError(
            "two ranks with the same weights give different outputs: build_model draws numbers that are no weights, or "
            "depends on the rank; keep them in a buffer (register_buffer), which is broadcast"
        )
