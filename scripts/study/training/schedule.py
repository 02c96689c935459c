"""Learning rate and penalties as the run's keys set them, step by step and epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterable

from study.backends.base import Trainer
from study.communication.collectives import Collectives
from study.experiment.definition import RunDefinition
from study.experiment.learning_rate import (
    PLATEAU_FACTOR,
    compute_rate,
    count_reductions,
    count_warmup_steps,
    find_collapse_epoch,
    scale_rate,
)

COLLAPSED_PENALTY = 2.0  # factor of the weight decay in a collapse (PRACE guide to deep learning, 2019, 6.2.7)


class Schedule:
    """Sets the learning rate and the penalties of a trainer while it trains.

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
        kind, warmup = run.parameters.get("warmup", "gradual"), count_warmup_steps(run, steps)
        self._decays = run.parameters.get("learning_rate_decay", "none") != "none"
        # A gradual warm-up ends with the scaled rate; after the others the next step has yet to get it.
        self._last_change = warmup + (kind != "gradual") if warmup else 0
        self._rate: float | None = None
        epoch = find_collapse_epoch(run)
        self._first_collapsed = None if epoch is None else epoch * steps
        self._penalty = 1.0
        self._patience = run["plateau_epochs"]

    @property
    def changes_by_step(self) -> bool:
        """True if the learning rate changes from step to step."""
        return self._decays or self._last_change > 0

    def begin_epoch(self) -> None:
        """Reduce the learning rate on a plateau, under ``plateau_epochs``.

        It follows from the validation losses of all epochs before, so a resumed run needs no other state.
        """
        if self._patience:
            factor = PLATEAU_FACTOR ** count_reductions(self._losses, self._patience)
            self._trainer.set_learning_rate(scale_rate(self._run, self._size) * factor)

    def apply_schedule(self) -> None:
        """Set the learning rate and penalty of the next step, where they change."""
        if self._decays or self._step < self._last_change:
            rate = compute_rate(self._run, self._size, self._step, self._steps)
            if rate != self._rate:
                self._trainer.set_learning_rate(rate)
                self._rate = rate
        if self._first_collapsed is not None and self._step >= self._first_collapsed:
            self._set_penalty(COLLAPSED_PENALTY)
        self._step += 1

    def end_steps(self) -> None:
        """Reset the penalties before validation, so that its loss is one quantity over all epochs."""
        self._set_penalty(1.0)

    def end_epoch(self, loss: float) -> None:
        """Keep an epoch's validation loss, rank 0's, so that all ranks reduce the learning rate alike."""
        if self._patience:
            loss = self._ranks.gather(loss)[0]
        self._losses.append(loss)

    def _set_penalty(self, factor: float) -> None:
        """Set the factor of the penalties, if it changes."""
        if factor != self._penalty:
            self._trainer.set_penalty_factor(factor)
            self._penalty = factor
