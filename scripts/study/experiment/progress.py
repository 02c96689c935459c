"""The progress line after each run: how many runs are done, and about how long the others take."""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from study.core.wording import format_count, format_duration
from study.experiment.study import PlannedRun

FINISHED = "job_finished"  # Snakemake's event, see snakemake_interface_logger_plugins.common.LogEvent


class Progress:
    """The runs to do, which start one after the other, and the durations of those that are done."""

    def __init__(self, runs: list[PlannedRun]) -> None:
        self._remaining = list(runs)
        self._total = len(runs)
        self._done: list[tuple[PlannedRun, float]] = []

    def finish(self, run: PlannedRun, seconds: float) -> str:
        """Count a finished run, and return the progress line. seconds: from the end of the job before it."""
        self._remaining.remove(run)
        self._done.append((run, seconds))
        duration = format_duration(sum(map(self._estimate_s, self._remaining)))
        remaining = f", about {duration} left" if self._remaining else ""
        return f"{self._total - len(self._remaining)} of {format_count(self._total, 'run')}{remaining}"

    def _estimate_s(self, run: PlannedRun) -> float:
        """Estimate the seconds of a run: the mean of the finished runs most like it, repeats of its point first."""
        likeness: list[Callable[[PlannedRun], object]] = [
            lambda each: each.point,
            lambda each: (each.dataset.id, each.gpus),
            lambda each: each.dataset.id,
            lambda each: None,
        ]
        for key in likeness:
            if alike := [seconds for other, seconds in self._done if key(other) == key(run)]:
                return statistics.mean(alike)
        raise AssertionError("it is asked after the first run")


class Reporter(logging.Handler):
    """Prints the line of `Progress` when Snakemake logs that a run's job has finished."""

    def __init__(self, runs: Mapping[int, PlannedRun]) -> None:
        """runs: by the number of their job."""
        super().__init__()
        self._runs = dict(runs)
        self._progress = Progress(list(runs.values()))
        self._before = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a finished job; other events are ignored."""
        if str(getattr(record, "event", "")) != FINISHED:
            return
        seconds, self._before = time.monotonic() - self._before, time.monotonic()
        run = self._runs.pop(getattr(record, "job_id", -1), None)
        if run is not None:
            print(self._progress.finish(run, seconds), file=sys.stderr, flush=True)
