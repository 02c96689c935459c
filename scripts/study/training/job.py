"""What one rank trains: by itself or with all ranks of its run, or as a member of an ensemble."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from study.experiment.definition import RunDefinition
from study.models.base import Benchmark
from study.training import checkpoints
from study.training.communicator import Communicator

Fitted = tuple[pd.DataFrame, list[dict[str, float]], dict[str, float] | None]  # as `study.training.fit.fit` gives


class Job:
    """A run on one rank or more that train together.

    Args:
        run: what is trained.
        benchmark: of the run.
        communicator: of the ranks that train together.
    """

    def __init__(self, run: RunDefinition, benchmark: Benchmark, communicator: Communicator) -> None:
        self.run, self.benchmark, self.communicator = run, benchmark, communicator

    def checkpoints(self, folder: str | Path) -> Path:
        """The folder of its checkpoints. folder: the run's directory."""
        return checkpoints.folder_of(folder)

    def steps(self, model: Any) -> Callable[[], int]:
        """A function that gives the number of steps made so far."""
        return model.optimizer.iterations.numpy

    def goes_on(self, epoch: int, loss: float) -> bool:
        """Whether it trains on after an epoch, from 1, that it has ended with this validation loss."""
        return True

    def train(self, model: Any, fit: Callable[[], Fitted]) -> Fitted:
        """Train; returns the history, the checkpoints written and the times of steps. fit: trains ``model``."""
        return fit()

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Loss and metrics on the test set. evaluate: gives them."""
        return evaluate()

    @property
    def told(self) -> dict[str, Any] | None:
        """What the record of a run tells of this rank as a member of an ensemble; None if it is none."""
        return None
