"""The loop of training: epochs, learning rate, validation, checkpoints and history, whatever the framework."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from study.backends.base import Trainer, rank_samples, rank_steps
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
        number, batch_size = rank_samples(data, run), run.derived.batch_size_per_rank
        if batch_size > number:
            raise StudyError(f"batch_size: {batch_size} is larger than the {number} training samples of a rank")
        self._schedule = Schedule(trainer, run, ranks, rank_steps(data, run), [row["val_loss"] for row in rows])
        self._delay_s = run.parameters.get("step_delay_ms", 0) / 1e3
        self.acts_before_steps = self._schedule.changes or self._delay_s > 0
        self._traffic = ranks.traffic()
        self._steps: dict[str, float | None] = {}
        self._begun_wall = self._begun = 0

    def run(self) -> History:
        """Train the epochs that are left; returns the columns of ``history.csv``, one row per epoch."""
        self._trainer.begin(self._first)
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
        for epoch in range(self._first, self._epochs):
            self.begin_epoch(epoch)
            logs = self._trainer.train_epoch(epoch, self.before_step)
            self.end_steps()
            self.end_epoch(epoch, logs, self._trainer.evaluate(self._data.validation))

    def begin_epoch(self, epoch: int) -> None:
        """Before the first step of an epoch, from 0."""
        self._traffic.begin()
        self._steps = {}
        self._begun_wall, self._begun = now()
        self._schedule.begin_epoch()

    def before_step(self) -> None:
        """Before each step: learning rate and the like, and the injected delay."""
        if self._schedule.changes:
            self._schedule.apply_schedule()
        if self._delay_s:
            time.sleep(self._delay_s)

    def end_steps(self) -> None:
        """After the last step of an epoch, before validation."""
        self._steps = {"steps_s": (time.monotonic_ns() - self._begun) / 1e9, **self._traffic.end()}
        self._schedule.end_steps()

    def end_epoch(self, epoch: int, logs: Mapping[str, float], validation: Mapping[str, float] | None) -> None:
        """After an epoch: its row of the history, and, but for the last one, a checkpoint if one is due."""
        _check_loss(logs, "train_step")
        if validation is None:
            validation = self._trainer.evaluate(self._data.validation)
        _check_loss(validation, "test_step")
        metric_names.check([*logs, *validation])
        quality = {**logs, **{f"val_{name}": value for name, value in validation.items()}}
        divergence.check(quality, epoch, self._trainer.steps_per_epoch, self._trainer.finite_steps())
        seconds = (time.monotonic_ns() - self._begun) / 1e9
        row = {"epoch": epoch + 1, "time_s": seconds, **quality, "learning_rate": self._trainer.learning_rate()}
        begun = {"begin_wall_ns": self._begun_wall, "begin_monotonic_ns": self._begun}
        self.rows.append(row | begun | self._steps | self._trainer.measured())
        if self._ranks.rank == 0:
            print(f"epoch {epoch + 1}/{self._epochs}: {seconds:.2f} s, {_shown(quality)}", flush=True)
        self._schedule.end_epoch(quality["val_loss"])
        if epoch + 1 < self._epochs and self._writer.is_due(epoch + 1):
            with self._phases("checkpoint"):
                self._writer.save(epoch + 1, self._trainer.state(), self.rows)


def resume(trainer: Trainer, run: RunDefinition, folder: str | Path, ranks: Collectives) -> History:
    """Restore ``trainer`` from the latest checkpoint in ``folder``, if there is one; rank 0 reads it.

    Returns the rows of the history of the epochs already trained. The other ranks get the state by the broadcast that
    follows.
    """
    rows: History = []
    if ranks.rank == 0 and (found := checkpoints.latest(folder, checkpoints.labels(run), trainer.shapes())):
        epochs, state, rows = found
        trainer.load(state)
        print(f"resumed after epoch {epochs}", flush=True)
    return ranks.gather(rows)[0]


def _check_loss(logs: Mapping[str, float], step: str) -> None:
    """Raise `StudyError` if a model's own step has left out its loss."""
    if "loss" not in logs:
        raise StudyError(f"the model's {step} returns no 'loss'; return it beside the metrics")


def _shown(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
