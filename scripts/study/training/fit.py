"""Training: epochs, their times and order, the learning rate, and checkpoints."""

import time
from pathlib import Path
from typing import Any

import pandas as pd

from study.core.errors import StudyError
from study.data.randomness import EpochOrder
from study.data.samples import batches
from study.experiment.definition import RunDefinition
from study.instruments.phases import PhaseLog, now
from study.instruments.traffic import Traffic
from study.models.base import Data
from study.training import checkpoints, learning_rate
from study.training.communicator import Communicator


def state(model: Any) -> list[Any]:
    """The variables of a model and of its optimizer: the content of the broadcast and of checkpoints."""
    return [*model.variables, *model.optimizer.variables]


def resume(
    model: Any, run: RunDefinition, folder: str | Path, communicator: Communicator
) -> tuple[int, list[dict[str, Any]]]:
    """Restore ``model`` from the run's latest checkpoint, if there is one; rank 0 reads it.

    Returns (epochs already trained, their rows of the history). The other ranks get the state by the broadcast that
    follows.
    """
    epochs: int = 0
    rows: list[dict[str, Any]] = []
    if communicator.rank == 0:
        variables = state(model)
        found = checkpoints.latest(folder, labels(run), [tuple(variable.shape) for variable in variables])
        if found:
            epochs, arrays, rows = found
            for variable, array in zip(variables, arrays, strict=True):
                variable.assign(array)
            print(f"resumed after epoch {epochs}", flush=True)
    return communicator.gather((epochs, rows))[0]


def labels(run: RunDefinition) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that resumes from it."""
    return {"fingerprint": run.fingerprint}


def fit(
    model: Any,
    data: Data,
    run: RunDefinition,
    folder: str | Path,
    communicator: Communicator,
    phases: PhaseLog,
    resumed: tuple[int, list[dict[str, Any]]],
) -> pd.DataFrame:
    """Train; returns a data frame with the columns of ``history.csv``, one row per epoch.

    resumed: the result of `resume`. phases: the rank's log, for the phase ``checkpoint``.
    """
    batch_size = run.derived.batch_size_per_rank
    if batch_size > len(data.train):
        raise StudyError(f"batch_size: {batch_size} is larger than the {len(data.train)} training samples of a rank")
    epochs, rows = resumed
    seed = run.derived.seed + communicator.rank
    order = EpochOrder(seed, epochs) if run.benchmark["shuffle"] else None
    steps = -(-len(data.train) // batch_size)
    arrays = run["input_pipeline"] == "keras_arrays"
    every = run["checkpoint_epochs"] if communicator.rank == 0 else 0
    writer = checkpoints.Writer(folder, every, labels(run))
    times = _epoch_times(rows, communicator, order, writer, phases)
    model.fit(
        **(_arrays(data, batch_size, order) if arrays else _pipelines(data, batch_size, order)),
        initial_epoch=epochs,
        epochs=run.derived.epochs_per_rank,
        callbacks=[*learning_rate.warmup(run, communicator.size, steps, epochs), times],
        verbose=0,
    )
    if every:
        with phases("checkpoint"):
            writer.close()
    return pd.DataFrame(times.rows)


def _pipelines(data: Data, batch_size: int, order: EpochOrder | None) -> dict[str, Any]:
    """Keras's training input under ``input_pipeline: tf_data``."""
    return {"x": batches(data.train, batch_size, order), "validation_data": batches(data.validation, batch_size)}


def _arrays(data: Data, batch_size: int, order: EpochOrder | None) -> dict[str, Any]:
    """The same under ``keras_arrays``, as in the benchmarks' own scripts; Keras shuffles with its own seed."""
    x, y = data.train.arrays()
    return {
        "x": x,
        "y": y,
        "batch_size": batch_size,
        "shuffle": order is not None,
        "validation_data": data.validation.arrays(),
    }


def _epoch_times(
    rows: list[dict[str, Any]],
    communicator: Communicator,
    order: EpochOrder | None,
    writer: checkpoints.Writer,
    phases: PhaseLog,
) -> Any:
    """The Keras callback that acts at the ends of epochs and keeps the rows of the history."""
    import tf_keras as keras

    class EpochTimes(keras.callbacks.Callback):
        """Begin and wall-clock time of each epoch, with and without validation, its traffic and learning rate."""

        def __init__(self) -> None:
            super().__init__()
            self.rows = list(rows)
            self._traffic = Traffic()
            self._steps: dict[str, float | None] = {}

        def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            self._traffic.begin()
            self._steps = {}
            self._begun_wall, self._begun = now()

        def on_test_begin(self, logs: dict[str, float] | None = None) -> None:
            self._end_steps()

        def _end_steps(self) -> None:
            """The end of the epoch's steps, before validation."""
            if not self._steps:
                self._steps = {"steps_s": (time.monotonic_ns() - self._begun) / 1e9, **self._traffic.end()}

        def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            measured = logs or {}
            self._end_steps()
            seconds = (time.monotonic_ns() - self._begun) / 1e9
            rate = float(keras.backend.get_value(self.model.optimizer.learning_rate))
            row = {"epoch": epoch + 1, "time_s": seconds, **measured, "learning_rate": rate}
            self.rows.append(row | {"begin_wall_ns": self._begun_wall, **self._steps})
            if order:
                order.set(epoch + 1)
            if communicator.rank == 0:
                print(f"epoch {epoch + 1}/{self.params['epochs']}: {seconds:.2f} s, {_shown(measured)}", flush=True)
            if writer.is_due(epoch + 1) and epoch + 1 < self.params["epochs"]:
                with phases("checkpoint"):
                    writer.save(epoch + 1, [variable.numpy() for variable in state(self.model)], self.rows)

    return EpochTimes()


def _shown(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
