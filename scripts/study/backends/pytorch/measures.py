"""Measures of a rank's training steps: its own compute time, and the durations of steps."""

from __future__ import annotations

import time

import numpy as np

from study.backends.base import summarize_step_times
from study.experiment.definition import RunDefinition


class StepMeasures:
    """Measures the steps of one rank; one epoch after the other."""

    def __init__(self, run: RunDefinition) -> None:
        # A GPU's work is only queued when the time is taken; emulated ranks take turns, so none is timed.
        self._times = run.machine["gpus_per_rank"] == 0 and run.emulated_ranks == 1
        self._begins: list[int] = []  # of the steps of the epoch, monotonic ns
        self._compute_ns = 0
        self._durations: list[np.ndarray] = []  # of each epoch's steps but the last

    def begin_step(self) -> None:
        """Note the begin of a step."""
        self._begins.append(time.monotonic_ns())

    def end_step(self, ready_ns: int) -> None:
        """Add up the compute time of a step. ready_ns: when its last gradients were ready on this rank."""
        self._compute_ns += ready_ns - self._begins[-1]

    def end_epoch(self) -> dict[str, float]:
        """End an epoch: its mean compute time, ``compute_per_step_s``, if it is measured; the next starts from zero."""
        measures: dict[str, float] = {}
        if self._times and self._begins:
            self._durations.append(np.diff(self._begins) / 1e9)
            measures["compute_per_step_s"] = self._compute_ns / 1e9 / len(self._begins)
        self._begins, self._compute_ns = [], 0
        return measures

    def summarize_step_times(self) -> dict[str, float] | None:
        """Seconds from one step's begin to the next one's; see `study.backends.base.summarize_step_times`."""
        return summarize_step_times(self._durations)
