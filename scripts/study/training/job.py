"""The job of one rank: what it trains, alone or with all ranks of its run; ensembles have jobs of their own."""

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
    """The training of a run by one rank, or by several together.

    Args:
        run: what is trained.
        workload: of the run.
        communicator: of the ranks that train together.
    """

    def __init__(self, run: RunDefinition, workload: Workload, communicator: Collectives) -> None:
        self.run, self.workload, self.communicator = run, workload, communicator

    @classmethod
    def create(
        cls, run: RunDefinition, folder: str | Path, communicator: Collectives, workload: Workload, data: Data
    ) -> Job:
        """Create the job of this rank; all ranks must call. folder: the run's directory. data: may be changed."""
        return cls(run, workload, communicator)

    def locate_checkpoints(self, folder: str | Path) -> Path:
        """The folder of the job's checkpoints. folder: the run's directory."""
        return checkpoints.locate_folder(folder)

    def make_step_counter(self, trainer: Trainer) -> Callable[[], int]:
        """Make a function that counts the steps made so far, for the heartbeat."""
        return trainer.count_steps_made

    def train(self, trainer: Trainer, fit: Callable[[], History]) -> History:
        """Train by calling ``fit``; returns the history."""
        return fit()

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Loss and metrics on the test set, by calling ``evaluate``."""
        return evaluate()

    def collect_results(
        self, history: History, test_metrics: Mapping[str, float], initial_checksum: int
    ) -> dict[str, Any]:
        """The job's additions to the rank's entry in ``metrics.json``.

        history: of `train`. test_metrics: of `evaluate`. initial_checksum: of the weights before training.
        """
        return {}

    def compute_resumed_epoch(self, epochs: int) -> int:
        """The number of epochs that an earlier attempt at the run had trained. epochs: the same of this rank."""
        return epochs


CreateJob = Callable[[RunDefinition, str | Path, Collectives, Workload, Data], Job]  # as `Job.create`
