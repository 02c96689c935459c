"""The loop of training: epochs, learning rate, validation, checkpoints and history, whatever the framework."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from study.backends.base import Trainer, count_rank_samples, count_rank_steps
from study.communication.collectives import Collectives
from study.core.errors import StudyError
from study.experiment import metric_names
from study.experiment.definition import RunDefinition
from study.instruments.phases import PhaseLog, now
from study.training import checkpoints, divergence
from study.training.history import History
from study.training.schedule import Schedule
from study.workloads.base import Data


class Loop:
    """The training of one rank: the `study.backends.base.Hooks` of a trainer, which the loop calls by itself too.

    Args:
        trainer: with the state from which training begins.
        data: its samples.
        run: what is trained.
        ranks: that train together.
        phases: the rank's log, for the phase ``checkpoint``.
        writer: of the checkpoints.
        rows: of the history of the epochs that an earlier attempt has trained.
    """

    def __init__(
        self,
        trainer: Trainer,
        data: Data,
        run: RunDefinition,
        ranks: Collectives,
        phases: PhaseLog,
        writer: checkpoints.Writer,
        rows: History,
    ) -> None:
        self._trainer, self._data, self._ranks, self._phases = trainer, data, ranks, phases
        self._writer = writer
        self.rows, self._first, self._epochs = list(rows), len(rows), run.derived.epochs_per_rank
        number, batch_size = count_rank_samples(data, run), run.derived.batch_size_per_rank
        if batch_size > number:
            raise StudyError(f"batch_size: {batch_size} is larger than the {number} training samples of a rank")
        self._schedule = Schedule(trainer, run, ranks, count_rank_steps(data, run), [row["val_loss"] for row in rows])
        self._delay_s = run.parameters.get("step_delay_ms", 0) / 1e3
        self.acts_on_steps = self._schedule.changes_by_step or self._delay_s > 0
        self._traffic = ranks.traffic()
        self._steps: dict[str, float | None] = {}
        self._begun_wall = self._begun = 0

    def run(self) -> History:
        """Train the remaining epochs; returns the history, one row per epoch."""
        self._trainer.begin_training(self._first)
        if self._trainer.runs_epochs:
            self._trainer.fit(self, self._first, self._epochs)
        else:
            self._run_epochs()
        if len(self.rows) < self._epochs:
            raise StudyError(
                f"training ended after {len(self.rows)} of {self._epochs} epochs: the model sets stop_training; "
                "leave that out, the number of epochs is the run's"
            )
        if self._writer.is_used:
            with self._phases("checkpoint"):
                self._writer.close()
        return self.rows

    def _run_epochs(self) -> None:
        """Run the remaining epochs here, for a trainer without a loop of its own."""
        for epoch in range(self._first, self._epochs):
            self.begin_epoch(epoch)
            logs = self._trainer.train_epoch(epoch, self.begin_step)
            self.end_steps()
            self.end_epoch(epoch, logs, self._trainer.evaluate(self._data.validation))

    def begin_epoch(self, epoch: int) -> None:
        """Start the clock and counters of an epoch, and reduce the learning rate on a plateau. epoch: from 0."""
        self._traffic.begin()
        self._steps = {}
        self._begun_wall, self._begun = now()
        self._schedule.begin_epoch()

    def begin_step(self) -> None:
        """Set the learning rate and the like of the next step, and wait for the injected delay."""
        if self._schedule.changes_by_step:
            self._schedule.apply_schedule()
        if self._delay_s:
            time.sleep(self._delay_s)

    def end_steps(self) -> None:
        """Stop the clock and counters of an epoch's steps, before its validation."""
        self._steps = {"steps_s": (time.monotonic_ns() - self._begun) / 1e9, **self._traffic.end()}
        self._schedule.end_steps()

    def end_epoch(self, epoch: int, logs: Mapping[str, float], validation: Mapping[str, float] | None) -> None:
        """Check an epoch's losses, add its row to the history, and save a checkpoint if one is due.

        After the last epoch none is due.
        """
        _check_loss(logs, "train_step")
        if validation is None:
            validation = self._trainer.evaluate(self._data.validation)
        _check_loss(validation, "test_step")
        metric_names.check_metric_names([*logs, *validation])
        quality = {**logs, **{f"val_{name}": value for name, value in validation.items()}}
        divergence.check_losses(quality, epoch, self._trainer.steps_per_epoch, self._trainer.count_finite_steps())
        seconds = (time.monotonic_ns() - self._begun) / 1e9
        row = {"epoch": epoch + 1, "time_s": seconds, **quality, "learning_rate": self._trainer.get_learning_rate()}
        begun = {"begin_wall_ns": self._begun_wall, "begin_monotonic_ns": self._begun}
        self.rows.append(row | begun | self._steps | self._trainer.collect_epoch_measures())
        if self._ranks.rank == 0:
            print(f"epoch {epoch + 1}/{self._epochs}: {seconds:.2f} s, {_format_metrics(quality)}", flush=True)
        self._schedule.end_epoch(quality["val_loss"])
        if epoch + 1 < self._epochs and self._writer.is_due(epoch + 1):
            with self._phases("checkpoint"):
                self._writer.save(epoch + 1, self._trainer.get_state(), self.rows)


def resume_from_checkpoint(trainer: Trainer, run: RunDefinition, folder: str | Path, ranks: Collectives) -> History:
    """Restore ``trainer`` from the latest checkpoint in ``folder``, if there is one; rank 0 reads it.

    Returns the history of the epochs already trained. The other ranks get the state by the broadcast that follows.
    """
    rows: History = []
    if ranks.rank == 0 and (
        checkpoint := checkpoints.read_latest(folder, checkpoints.make_labels(run), trainer.get_shapes())
    ):
        epochs, state, rows = checkpoint
        trainer.load_state(state)
        print(f"resumed after epoch {epochs}", flush=True)
    return ranks.gather(rows)[0]


def _check_loss(logs: Mapping[str, float], step: str) -> None:
    """Raise `StudyError` if a model's own ``step`` leaves out its loss."""
    if "loss" not in logs:
        raise StudyError(f"the model's {step} returns no 'loss'; return it beside the metrics")


def _format_metrics(metrics: Mapping[str, float]) -> str:
    """Metrics for the line that an epoch prints."""
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
