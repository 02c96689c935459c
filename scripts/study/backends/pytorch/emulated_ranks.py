"""Emulated ranks: one rank trains as several do, which shows their accuracy without their GPUs.

A step computes the gradients of each emulated rank in turn, averages them and applies them once. Each emulated rank has
the sample order, the part of the samples and the random draws of the rank that it stands for. It also has its own
moving statistics: the model has those of rank 0 when it is validated, as on real ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from study.backends.pytorch import build
from study.backends.pytorch.input import Chosen
from study.backends.pytorch.trainer import TorchTrainer
from study.data.order import rank_seed

Gradients = list[Tensor | None]


class EmulatingTrainer(TorchTrainer):
    """A trainer of the ranks that one rank emulates."""

    def begin(self, epochs: int) -> None:
        """Give each rank the model's moving statistics."""
        super().begin(epochs)
        self._emulated = self._run.emulated_ranks
        self._statistics = [self._buffers() for _ in range(self._emulated)]

    def _buffers(self) -> list[Tensor]:
        return [each.clone() for each in self.model.buffers()]

    def train_epoch(self, epoch: int, before_step: Callable[[], None]) -> dict[str, float]:
        """Make the steps of an epoch; loss and metrics are of rank 0."""
        self.model.train()
        self._reset_metrics()
        states = [self._generator_state(rank, epoch) for rank in range(self._emulated)]
        losses, sizes = [], []
        for chosen in zip(*(self._of_rank(rank, epoch) for rank in range(self._emulated)), strict=True):
            before_step()
            losses.append(self._step_of_all(chosen, states))
            sizes.append(len(chosen[0][0]))
        return self._logs(losses, sizes)

    def _generator_state(self, rank: int, epoch: int) -> list[Tensor]:
        """Of PyTorch's generators, as a real rank begins an epoch with them."""
        build.seed_generator(rank_seed(self._run.derived.seed, rank), epoch)
        return self._generators()

    def _generators(self) -> list[Tensor]:
        of_device = [torch.cuda.get_rng_state(self._device)] if self._device.type == "cuda" else []
        return [torch.get_rng_state(), *of_device]

    def _of_rank(self, rank: int, epoch: int) -> Iterator[Chosen]:
        """The positions of a rank's batches."""
        samples, positions = self._data.train, self._order(rank, epoch)
        if self._run["sharding"] == "by_rank":  # as in `study.data.samples.part`
            positions = positions * self._emulated + rank
        return self._chosen(samples, positions, epoch)

    def _step_of_all(self, chosen: tuple[Chosen, ...], states: list[list[Tensor]]) -> Tensor:
        """One step of all ranks; returns the loss of rank 0.

        A batch is made when its rank has its turn, so that memory does not grow with the ranks.
        """
        total: Gradients = [None] * len(self._weights)
        losses = []
        for rank, of_rank in enumerate(chosen):
            x, y = self._input(self._data.train).made(of_rank)
            self._take(rank, states)
            loss, outputs = self._forward(self.model, x, y)
            gradients = torch.autograd.grad(loss, self._weights, allow_unused=True)
            self._keep(rank, states)
            total = [_added(one, other) for one, other in zip(total, gradients, strict=True)]
            losses.append(loss.detach())
            if rank == 0:
                self._add_to_metrics(y, outputs)
        self._take(0, states)
        for weight, gradient in zip(self._weights, total, strict=True):
            # Multiplied, as DDP's hook does.
            weight.grad = None if gradient is None else gradient * (1 / self._emulated)
        self.optimizer.apply()
        self.optimizer.steps += 1
        return losses[0]

    @torch.no_grad()
    def _take(self, rank: int, states: list[list[Tensor]]) -> None:
        """Give the model the moving statistics of a rank, and the generators its state."""
        for own, kept in zip(self.model.buffers(), self._statistics[rank], strict=True):
            own.copy_(kept)
        torch.set_rng_state(states[rank][0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(states[rank][1], self._device)

    def _keep(self, rank: int, states: list[list[Tensor]]) -> None:
        """Keep what the model and the generators have after a rank's turn."""
        self._statistics[rank], states[rank] = self._buffers(), self._generators()


def _added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other
