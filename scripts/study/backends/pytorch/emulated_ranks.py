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
from study.backends.pytorch.input import BatchPositions
from study.backends.pytorch.trainer import TorchTrainer
from study.data.order import derive_rank_seed

Gradients = list[Tensor | None]


class EmulatingTrainer(TorchTrainer):
    """A trainer of the ranks that one rank emulates."""

    def begin_training(self, epochs: int) -> None:
        """Prepare the training step, and give each emulated rank the model's moving statistics."""
        super().begin_training(epochs)
        self._emulated = self._run.emulated_ranks
        self._statistics = [self._copy_buffers() for _ in range(self._emulated)]

    def _copy_buffers(self) -> list[Tensor]:
        """Copies of the model's buffers, such as moving statistics."""
        return [each.clone() for each in self.model.buffers()]

    def train_epoch(self, epoch: int, begin_step: Callable[[], None]) -> dict[str, float]:
        """Make the steps of an epoch; loss and metrics are of rank 0."""
        self.model.train()
        self._reset_metrics()
        states = [self._make_generator_states(rank, epoch) for rank in range(self._emulated)]
        losses, sizes = [], []
        for batches in zip(*(self._choose_batches_of_rank(rank, epoch) for rank in range(self._emulated)), strict=True):
            begin_step()
            losses.append(self._step_all_ranks(batches, states))
            sizes.append(len(batches[0][0]))
        return self._summarize_epoch(losses, sizes)

    def _make_generator_states(self, rank: int, epoch: int) -> list[Tensor]:
        """The states of PyTorch's generators with which a real rank begins an epoch."""
        build.seed_generators(derive_rank_seed(self._run.derived.seed, rank), epoch)
        return self._get_generator_states()

    def _get_generator_states(self) -> list[Tensor]:
        """The present states of PyTorch's generators: of the CPU, and of the GPU if there is one."""
        of_device = [torch.cuda.get_rng_state(self._device)] if self._device.type == "cuda" else []
        return [torch.get_rng_state(), *of_device]

    def _choose_batches_of_rank(self, rank: int, epoch: int) -> Iterator[BatchPositions]:
        """The positions and random changes of an emulated rank's batches in an epoch."""
        samples, positions = self._data.train, self._draw_order(rank, epoch)
        if self._run["sharding"] == "by_rank":  # as in `study.data.samples.select_part`
            positions = positions * self._emulated + rank
        return self._choose_batches(samples, positions, epoch)

    def _step_all_ranks(self, batches: tuple[BatchPositions, ...], states: list[list[Tensor]]) -> Tensor:
        """Make one step of all emulated ranks; returns the loss of rank 0.

        A batch is made when its rank has its turn, so that memory does not grow with the ranks.
        """
        total: Gradients = [None] * len(self._weights)
        losses = []
        for rank, batch in enumerate(batches):
            x, y = self._get_input(self._data.train).make_batch(batch)
            self._restore_rank(rank, states)
            loss, outputs = self._compute_loss(self.model, x, y)
            gradients = torch.autograd.grad(loss, self._weights, allow_unused=True)
            self._save_rank(rank, states)
            total = [_add(one, other) for one, other in zip(total, gradients, strict=True)]
            losses.append(loss.detach())
            if rank == 0:
                self._add_to_metrics(y, outputs)
        self._restore_rank(0, states)
        for weight, gradient in zip(self._weights, total, strict=True):
            # Multiplied, as DDP's hook does.
            weight.grad = None if gradient is None else gradient * (1 / self._emulated)
        self.optimizer.apply()
        self.optimizer.steps += 1
        return losses[0]

    @torch.no_grad()
    def _restore_rank(self, rank: int, states: list[list[Tensor]]) -> None:
        """Give the model the moving statistics of a rank, and the generators its states."""
        for own, stored in zip(self.model.buffers(), self._statistics[rank], strict=True):
            own.copy_(stored)
        torch.set_rng_state(states[rank][0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(states[rank][1], self._device)

    def _save_rank(self, rank: int, states: list[list[Tensor]]) -> None:
        """Save a rank's moving statistics and generator states after its turn."""
        self._statistics[rank], states[rank] = self._copy_buffers(), self._get_generator_states()


def _add(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """The sum of two gradients, either of which may be missing."""
    return other if one is None else one if other is None else one + other
