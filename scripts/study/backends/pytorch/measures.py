"""What training steps show of a rank: its own compute time, and its gradients before and after they are averaged."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
from torch import Tensor

from study.backends.base import step_times
from study.experiment.definition import RunDefinition


class StepMeasures:
    """Measures the steps of one rank; one epoch after the other."""

    def __init__(self, run: RunDefinition, ranks: int) -> None:
        """ranks: over which gradients are averaged; one has no gradient noise to measure."""
        # A GPU's work is only queued when the time is taken; emulated ranks take turns, so none is timed.
        self._times = run.machine["gpus_per_rank"] == 0 and run.emulated_ranks == 1
        self._noise_every = run["gradient_noise_every"] if ranks > 1 else 0
        self._batch_size = run.derived.batch_size_per_rank
        self._begins: list[int] = []  # of the steps of the epoch, monotonic ns
        self._compute_ns = 0
        self._squares: list[tuple[float, float]] = []  # local, averaged
        self._durations: list[np.ndarray] = []  # of each epoch's steps but the last

    def begin_step(self, step: int, samples: int) -> bool:
        """Before a step, from 0, with so many samples; returns whether its gradients' squares are measured.

        The last batch of an epoch may be smaller; its gradients have another noise.
        """
        self._begins.append(time.monotonic_ns())
        return bool(self._noise_every) and step % self._noise_every == 0 and samples == self._batch_size

    def end_step(self, ready_ns: int) -> None:
        """After a step. ready_ns: when its last gradients were ready on this rank."""
        self._compute_ns += ready_ns - self._begins[-1]

    def add_squares(self, local: float, averaged: float) -> None:
        """The squared norms of a step's gradients, of one rank and of the average."""
        self._squares.append((local, averaged))

    def end_epoch(self) -> dict[str, float]:
        """Columns of ``history.csv``; the next epoch starts from zero.

        ``compute_per_step_s``: mean. ``gradient_square_local``, ``gradient_square_averaged``: sums over
        ``gradient_noise_steps`` steps. What is not measured is left out.
        """
        found: dict[str, float] = {}
        if self._times and self._begins:
            self._durations.append(np.diff(self._begins) / 1e9)
            found["compute_per_step_s"] = self._compute_ns / 1e9 / len(self._begins)
        if self._noise_every:
            local, averaged = np.asarray(self._squares, np.float64).reshape(-1, 2).sum(0).tolist()
            found |= {
                "gradient_square_local": local,
                "gradient_square_averaged": averaged,
                "gradient_noise_steps": float(len(self._squares)),
            }
        self._begins, self._compute_ns, self._squares = [], 0, []
        return found

    def step_times(self) -> dict[str, float] | None:
        """Seconds from one step's begin to the next one's; see `study.backends.base.step_times`."""
        return step_times(self._durations)


def squared_norm(gradients: Iterable[Tensor | None]) -> float:
    """The sum of the squares of all values of all gradients."""
    return sum(float(each.double().square().sum()) for each in gradients if each is not None)
