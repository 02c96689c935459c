"""Learning rate, momentum and penalties as the run's keys set them, step by step and epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterable

from study.backends.base import Trainer
from study.communication.collectives import Collectives
from study.experiment.definition import RunDefinition
from study.experiment.learning_rate import (
    PLATEAU_FACTOR,
    first_collapsed_epoch,
    momentum_at,
    rate_at,
    reductions,
    scaled,
    warmup_steps,
)

COLLAPSED_PENALTY = 2.0  # factor of the weight decay in a collapse (PRACE guide to deep learning, 2019, 6.2.7)


class Schedule:
    """Sets what changes while a trainer trains.

    Args:
        trainer: whose learning rate it sets.
        run: with the keys.
        ranks: that train together.
        steps: of an epoch.
        losses: of validation, of the epochs that an earlier attempt has trained.
    """

    def __init__(
        self, trainer: Trainer, run: RunDefinition, ranks: Collectives, steps: int, losses: Iterable[float] = ()
    ) -> None:
        self._trainer, self._run, self._ranks, self._steps = trainer, run, ranks, steps
        self._size, self._losses = ranks.size * run.emulated_ranks, list(losses)
        self._step = len(self._losses) * steps
        self._kind, warmup = run.parameters.get("warmup", "gradual"), warmup_steps(run, steps)
        self._decays = run.parameters.get("learning_rate_decay", "none") != "none"
        # A gradual warm-up ends with the scaled rate; after the others the next step has yet to get rate or momentum.
        self._last_change = warmup + (self._kind != "gradual") if warmup else 0
        self._rate: float | None = None
        epoch = first_collapsed_epoch(run)
        self._first_collapsed = None if epoch is None else epoch * steps
        self._penalty = 1.0
        self._patience = run["plateau_epochs"]

    @property
    def changes(self) -> bool:
        """Whether something changes from step to step."""
        return self._decays or self._last_change > 0

    def begin_epoch(self) -> None:
        """Reduce the learning rate on a plateau, under ``plateau_epochs``.

        It follows from the validation losses of all epochs before, so a resumed run needs no other state.
        """
        if self._patience:
            factor = PLATEAU_FACTOR ** reductions(self._losses, self._patience)
            self._trainer.set_learning_rate(scaled(self._run, self._size) * factor)

    def apply_schedule(self) -> None:
        """Before a step: its learning rate, momentum and penalty, where they change."""
        if self._decays or self._step < self._last_change:
            rate = rate_at(self._run, self._size, self._step, self._steps)
            if rate != self._rate:
                self._trainer.set_learning_rate(rate)
                self._rate = rate
            if self._kind == "momentum_corrected" and self._step < self._last_change:
                self._trainer.set_momentum(momentum_at(self._run, self._size, self._step, self._steps))
        if self._first_collapsed is not None and self._step >= self._first_collapsed:
            self._set_penalty(COLLAPSED_PENALTY)
        self._step += 1

    def end_steps(self) -> None:
        """Before validation, whose loss is one quantity over all epochs: the penalties as they are."""
        self._set_penalty(1.0)

    def end_epoch(self, loss: float) -> None:
        """Keep an epoch's validation loss, rank 0's: ranks have equal rates even if their losses differ in rounding."""
        if self._patience:
            loss = self._ranks.gather(loss)[0]
        self._losses.append(loss)

    def _set_penalty(self, factor: float) -> None:
        if factor != self._penalty:
            self._trainer.set_penalty_factor(factor)
            self._penalty = factor
