"""PyTorch's part of `study.backends.model_check`."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn

from study.backends.pytorch import build
from study.backends.pytorch.losses_and_metrics import LOGIT_LOSSES, get_loss, make_metrics
from study.communication import roles
from study.core.errors import StudyError
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition
from study.machines.run_layout import HOROVOD
from study.workloads.base import Benchmark

TRIED_S, MOST_TRIED = 3.0, 200  # time and number of passes in which a weight without a gradient is looked for
LARGE = 1e4  # inputs, with which outputs that are not bounded are far from 0 to 1


def check_model(benchmark: Benchmark, run: RunDefinition, samples: SampleSource, last_batch: int | None = None) -> None:
    """Raise `StudyError` if the model of a run does not keep what the run's keys promise.

    last_batch: samples of the last batch of an epoch; None if that is not known.
    """
    make_metrics(benchmark)
    first, second = (build.build_model(benchmark, run, rank, samples.shape) for rank in (0, 1))
    _check_gradients(first, run, samples)
    _check_each_pass(first, run, samples)
    _check_synchronized(first, run)
    if last_batch == 1 or run.derived.batch_size_per_rank == 1:
        _check_single_sample(first, run, samples)
    _check_same_outputs(first, second, samples)


def _check_each_pass(model: nn.Module, run: RunDefinition, samples: SampleSource) -> None:
    """Raise `StudyError` if a weight gets no gradient in some pass, as in a branch that not every batch takes.

    It gets one in the first pass, see `_check_gradients`. The passes differ in their samples and random numbers.
    """
    weights = {name: each for name, each in model.named_parameters() if each.requires_grad}
    sparse = [name for name, each in weights.items() if each.grad is not None and each.grad.is_sparse]
    if sparse:
        raise StudyError(
            f"benchmark {run.benchmark['name']}: the model's {', '.join(sparse[:3])} get sparse gradients, which are "
            "not averaged and applied here; leave out sparse=True"
        )
    if run.ranks * run.emulated_ranks == 1:
        return  # nobody waits for a gradient
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.from_numpy(each) for each in samples.batch(np.arange(2)))
    ended_s = time.monotonic() + TRIED_S
    for number in range(MOST_TRIED):
        model.zero_grad()
        inputs = x if number % 2 else torch.randn(x.shape, generator=generator).to(x.dtype)
        get_loss(run.benchmark["loss"])(model(inputs).float(), y).backward()
        without = [name for name, each in weights.items() if each.grad is None]
        if without:
            raise StudyError(
                f"benchmark {run.benchmark['name']}: the model's {', '.join(without[:3])} get no gradient in some "
                "steps, and the ranks would wait for each other or average unlike weights; use all weights in each "
                "step, such as by multiplying a branch by 0 or 1"
            )
        if time.monotonic() > ended_s:
            return


def _check_synchronized(model: nn.Module, run: RunDefinition) -> None:
    """Raise `StudyError` if a layer averages its statistics over the ranks where it cannot."""
    names = [name for name, each in model.named_modules() if isinstance(each, nn.SyncBatchNorm)]
    if not names or run.ranks * run.emulated_ranks == 1:
        return
    why = ""
    if run.emulated_ranks > 1:
        why = "emulated ranks have moving statistics of their own"
    elif roles.get_strategy(run) == HOROVOD:
        why = "only strategy: ddp can"
    elif not run.machine["gpus_per_rank"]:
        why = "only GPUs can, and the machine's ranks have none (gpus_per_rank: 0)"
    if why:
        raise StudyError(
            f"benchmark {run.benchmark['name']}: layer {names[0]} (SyncBatchNorm) averages over the ranks, but "
            f"{why}; use BatchNorm"
        )


def _check_single_sample(model: nn.Module, run: RunDefinition, samples: SampleSource) -> None:
    """Raise `StudyError` if the model cannot train on a batch of one sample, such as for want of a variance."""
    try:
        model(torch.from_numpy(samples.batch(np.arange(1))[0]))
    except ValueError as error:
        raise StudyError(
            f"benchmark {run.benchmark['name']}: the last batch of an epoch has one sample, on which the model cannot "
            f"be trained ({str(error).splitlines()[0]}); choose another batch_size or number of samples"
        ) from None


def _check_gradients(model: nn.Module, run: RunDefinition, samples: SampleSource) -> None:
    """Raise `StudyError` if a weight gets no gradient: DistributedDataParallel waits for all of them."""
    x, y = (torch.from_numpy(each) for each in samples.batch(np.arange(2)))
    outputs = model(x)
    if not isinstance(outputs, torch.Tensor) or outputs.shape != y.shape:
        description = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise StudyError(
            f"benchmark {run.benchmark['name']}: the model gives {description} for two samples, expected a tensor "
            f"of shape {tuple(y.shape)}, as of the outputs to learn"
        )
    if run.benchmark["loss"] in LOGIT_LOSSES and _gives_probabilities(model, x, outputs):
        raise StudyError(
            f"benchmark {run.benchmark['name']}: the model gives numbers from 0 to 1 only, and loss: "
            f"{run.benchmark['loss']} takes its outputs before softmax or sigmoid; leave that layer out"
        )
    get_loss(run.benchmark["loss"])(outputs.float(), y).backward()
    without = [name for name, each in model.named_parameters() if each.requires_grad and each.grad is None]
    if without:
        raise StudyError(
            f"benchmark {run.benchmark['name']}: the model's {', '.join(without[:3])} get no gradient, for which "
            "DistributedDataParallel would wait; use them, or set requires_grad to False"
        )


@torch.no_grad()
def _gives_probabilities(model: nn.Module, x: torch.Tensor, outputs: torch.Tensor) -> bool:
    """True if the outputs are from 0 to 1 whatever the inputs are: those before a softmax or a sigmoid are not.

    outputs: of ``x``, whose values may all be 0.
    """

    def are_within(values: torch.Tensor) -> bool:
        return bool(((values >= 0) & (values <= 1)).all())

    drawn = LARGE * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    return are_within(outputs) and are_within(model(drawn)) and are_within(model(-drawn))


@torch.no_grad()
def _check_same_outputs(first: nn.Module, second: nn.Module, samples: SampleSource) -> None:
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
