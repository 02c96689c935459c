"""What one rank trains, by itself or with all ranks of its run; a package above may give it something else to train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from study.backends.base import Trainer
from study.communication.collectives import Collectives
from study.experiment.definition import RunDefinition
from study.training import checkpoints
from study.training.history import History
from study.workloads.base import Data, Workload


class Job:
    """A run on one rank or more that train together.

    Args:
        run: what is trained.
        workload: of the run.
        communicator: of the ranks that train together.
    """

    def __init__(self, run: RunDefinition, workload: Workload, communicator: Collectives) -> None:
        self.run, self.workload, self.communicator = run, workload, communicator

    @classmethod
    def enter(
        cls, run: RunDefinition, folder: str | Path, communicator: Collectives, workload: Workload, data: Data
    ) -> Job:
        """The job of this rank; all ranks must call. folder: the run's directory. data: its samples, may be changed."""
        return cls(run, workload, communicator)

    def checkpoints(self, folder: str | Path) -> Path:
        """The folder of its checkpoints. folder: the run's directory."""
        return checkpoints.folder_of(folder)

    def steps(self, trainer: Trainer) -> Callable[[], int]:
        """A function that gives the number of steps made so far."""
        return trainer.steps_made

    def train(self, trainer: Trainer, fit: Callable[[], History]) -> History:
        """Train; returns the history. fit: trains with ``trainer``."""
        return fit()

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Loss and metrics on the test set. evaluate: gives them."""
        return evaluate()

    def results(self, history: History, test_metrics: Mapping[str, float], initial_checksum: int) -> dict[str, Any]:
        """What the rank adds to its entry of ``metrics.json``.

        history: of `train`. test_metrics: of `evaluate`. initial_checksum: of its weights before training.
        """
        return {}

    def resumed_after(self, epochs: int) -> int:
        """Epochs that an earlier attempt at the run had trained. epochs: of this rank."""
        return epochs


Enter = Callable[[RunDefinition, str | Path, Collectives, Workload, Data], Job]  # as `Job.enter`
