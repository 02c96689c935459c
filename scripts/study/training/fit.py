"""Training: epochs, their times and order, the learning rate, and checkpoints."""

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from study.backends.tensorflow import custom_loop, metric_names, model_state, own_models, strategy_input
from study.backends.tensorflow.emulated_ranks import EmulatedRanks
from study.backends.tensorflow.local_replica import LocalReplica
from study.backends.tensorflow.step_measures import StepMeasures
from study.communication.collectives import Communicator
from study.communication.roles import strategy_of
from study.core.errors import StudyError
from study.data.input_measures import InputMeasures
from study.data.randomness import EpochOrder, OrdersByRank
from study.data.samples import batches, samples_per_rank
from study.experiment.definition import RunDefinition
from study.instruments.phases import PhaseLog, now
from study.machines.process_roles import HOROVOD, PARAMETER_SERVER
from study.training import checkpoints, schedule
from study.training.divergence import Divergence
from study.workloads.base import Data


def state(model: Any) -> list[Any]:
    """The variables of a model and of its optimizer: the content of the broadcast and of checkpoints."""
    return [*model.variables, *model.optimizer.variables]


def resume(
    model: Any, run: RunDefinition, folder: str | Path, communicator: Communicator
) -> tuple[int, list[dict[str, Any]]]:
    """Restore ``model`` from the latest checkpoint in ``folder``, if there is one; rank 0 reads it.

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
    twin: LocalReplica | None = None,
    goes_on: Callable[[int, float], bool] = lambda epoch, loss: True,
) -> tuple[pd.DataFrame, list[dict[str, float]], dict[str, float] | None]:
    """Train; returns what this rank has seen of it.

    The columns of ``history.csv``, one row per epoch; the checkpoints that it has written; `StepMeasures.step_times`.

    folder: of the checkpoints. resumed: the result of `resume`. phases: the rank's log, for the phase ``checkpoint``.
    twin: under one of TensorFlow's strategies. goes_on: whether to train on after an epoch (from 1) with a validation
    loss; asked after each epoch but the last.
    """
    batch_size, number = run.derived.batch_size_per_rank, samples_of_rank(data, run)
    if batch_size > number:
        raise StudyError(f"batch_size: {batch_size} is larger than the {number} training samples of a rank")
    epochs, rows = resumed
    ranks, steps = communicator.size * run.emulated_ranks, -(-number // batch_size)
    measures = StepMeasures(run, ranks, steps)
    streamed = data.train.is_streamed and run.emulated_ranks == 1 and not twin
    of_input = InputMeasures(run["input_checksum"]) if streamed else None
    if twin:
        inputs, order = _inputs_of_strategy(model, data, run, communicator), None
    else:
        inputs, order = _inputs(model, data, run, communicator, measures, epochs, of_input)
    divergence = Divergence(model, inputs.get("steps_per_epoch", steps), epochs)
    every = run["checkpoint_epochs"] if communicator.rank == 0 else 0
    writer = checkpoints.Writer(folder, every, labels(run))
    validate = (lambda: twin.evaluate(data.validation)) if twin else None

    def measured() -> dict[str, float]:
        """Columns of an epoch that has ended; the steps of TensorFlow's strategies are not measured."""
        if twin:
            return {}
        return measures.end_epoch(steps) | (of_input.end_epoch(steps) if of_input else {})

    times = _epoch_times(rows, communicator, order, writer, phases, measured, divergence, goes_on, validate)
    plateau = schedule.on_plateau(run, ranks, communicator, [row["val_loss"] for row in rows])
    scheduled = [
        *schedule.schedule(run, ranks, steps, epochs),
        *schedule.collapsed_penalty(run, steps, epochs),
    ]
    callbacks = [*scheduled, *_delay(run), times, *plateau]
    train = functools.partial(custom_loop.fit, model) if is_custom(run) else functools.partial(model.fit, verbose=0)
    if not rows or goes_on(epochs, rows[-1]["val_loss"]):
        train(**inputs, initial_epoch=epochs, epochs=run.derived.epochs_per_rank, callbacks=callbacks)
        if not times.is_ended:
            raise StudyError(
                f"training ended after {len(times.rows)} of {run.derived.epochs_per_rank} epochs: the model sets "
                "stop_training; leave that out, the number of epochs is the run's"
            )
    if every:
        with phases("checkpoint"):
            writer.close()
    return pd.DataFrame(times.rows), writer.writes, measures.step_times()


def is_custom(run: RunDefinition) -> bool:
    """Whether this project's own loop makes the steps."""
    return run.parameters.get("training_loop", "keras") == "custom"


def _delay(run: RunDefinition) -> list[Any]:
    """Keras callbacks, one or none, that sleep before each step: the injected delay."""
    import tf_keras as keras

    seconds = run.parameters.get("step_delay_ms", 0) / 1e3
    if not seconds:
        return []

    class Delay(keras.callbacks.Callback):
        """Sleeps; by another hook than the warm-up's, whose time has a column of the profile."""

        def on_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
            time.sleep(seconds)

    return [Delay()]


def samples_of_rank(data: Data, run: RunDefinition) -> int:
    """The number of samples on which a rank trains in an epoch. data: its own, or those of all emulated ranks."""
    ranks = run.emulated_ranks if strategy_of(run) == HOROVOD else run.ranks
    is_shared = ranks > 1 and run["sharding"] == "by_rank"
    return samples_per_rank(len(data.train), ranks) if is_shared else len(data.train)


def _inputs(
    model: Any,
    data: Data,
    run: RunDefinition,
    communicator: Communicator,
    measures: StepMeasures,
    epochs: int,
    of_input: InputMeasures | None,
) -> tuple[dict[str, Any], EpochOrder | OrdersByRank | None]:
    """The input of Keras's ``fit``, and the order of the samples; prepares the model's training step for them."""
    batch_size = run.derived.batch_size_per_rank
    changing = model_state.check_state(model, run, (batch_size, *data.train.shape))
    if own_models.overrides(model, "train_step"):
        model_state.check_step(model, run, model_state.batch_of(data.train), communicator.has_averaged)
    if run.emulated_ranks > 1:
        emulated = EmulatedRanks(model, data.train, run, measures, changing)
        train, orders = emulated.batches(samples_of_rank(data, run), epochs)
        return {"x": train, "validation_data": batches(data.validation, batch_size)}, orders
    if is_custom(run):
        custom_loop.prepare(model)
    measures.observe(model, communicator)
    seed, buffer = run.derived.seed + communicator.rank, run.parameters.get("shuffle_buffer_samples", 0)
    order = EpochOrder(seed, epochs, buffer) if run.benchmark["shuffle"] else None
    if run["input_pipeline"] == "keras_arrays":
        return _arrays(data, batch_size, order), order
    return _pipelines(data, run, order, of_input), order


def _inputs_of_strategy(model: Any, data: Data, run: RunDefinition, communicator: Communicator) -> dict[str, Any]:
    """The input of Keras's ``fit`` under one of TensorFlow's strategies; validation is `LocalReplica`'s."""
    number = samples_of_rank(data, run)
    steps = -(-number // run.derived.batch_size_per_rank)
    if strategy_of(run) == PARAMETER_SERVER:
        strategy_input.seed_dropout_by_worker(model, run)
        return {"x": strategy_input.creator(data.train, number, run), "steps_per_epoch": steps * run.ranks}
    own = strategy_input.batches(data.train, number, run, communicator.rank)
    return {
        "x": communicator.strategy.distribute_datasets_from_function(lambda _: own),
        "steps_per_epoch": steps,
    }


def _pipelines(
    data: Data, run: RunDefinition, order: EpochOrder | None, of_input: InputMeasures | None
) -> dict[str, Any]:
    """Keras's training input under ``input_pipeline: tf_data``."""
    batch_size = run.derived.batch_size_per_rank
    prefetched, at_once = run.parameters.get("prefetch_batches", 1), run.parameters.get("map_parallel_calls", 0)
    samples = data.train.cached() if run.parameters.get("cache_samples") else data.train
    train = batches(samples, batch_size, order, of_input, prefetched, at_once)
    return {"x": train, "validation_data": batches(data.validation, batch_size)}


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
    order: EpochOrder | OrdersByRank | None,
    writer: checkpoints.Writer,
    phases: PhaseLog,
    measured: Callable[[], dict[str, float]],
    divergence: Divergence,
    goes_on: Callable[[int, float], bool],
    validate: Callable[[], dict[str, float]] | None = None,
) -> Any:
    """The Keras callback that acts at the ends of epochs and keeps the rows of the history.

    measured: gives further columns, of an epoch that has just ended. goes_on: as of `fit`. validate: loss and metrics
    of the validation set, if Keras does not validate.
    """
    import tf_keras as keras

    class EpochTimes(keras.callbacks.Callback):
        """Begin and wall-clock time of each epoch, with and without validation, its traffic and learning rate."""

        def __init__(self) -> None:
            super().__init__()
            self.rows = list(rows)
            self.is_ended = False  # by the run: after its last epoch, or as `goes_on` says
            self._traffic = communicator.traffic()
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
            quality = dict(logs or {})
            _check_losses(quality, ("loss",) if validate else ("loss", "val_loss"))
            metric_names.check(name.removeprefix("val_") for name in quality)
            self._end_steps()
            if validate:
                quality |= {f"val_{name}": value for name, value in validate().items()}
            divergence.check(quality)
            seconds = (time.monotonic_ns() - self._begun) / 1e9
            rate = float(keras.backend.get_value(self.model.optimizer.learning_rate))
            row = {"epoch": epoch + 1, "time_s": seconds, **quality, "learning_rate": rate}
            begun = {"begin_wall_ns": self._begun_wall, "begin_monotonic_ns": self._begun}
            self.rows.append(row | begun | self._steps | measured())
            if order:
                order.set(epoch + 1)
            if communicator.rank == 0:
                print(f"epoch {epoch + 1}/{self.params['epochs']}: {seconds:.2f} s, {_shown(quality)}", flush=True)
            if epoch + 1 == self.params["epochs"]:
                self.is_ended = True
                return
            if writer.is_due(epoch + 1):
                with phases("checkpoint"):
                    writer.save(epoch + 1, [variable.numpy() for variable in state(self.model)], self.rows)
            if not goes_on(epoch + 1, quality["val_loss"]):
                self.is_ended = self.model.stop_training = True

    return EpochTimes()


def _check_losses(logs: Mapping[str, float], names: tuple[str, ...]) -> None:
    """Raise `StudyError` if a model's own step has left out its loss."""
    for name in names:
        if name not in logs:
            step = "test_step" if name.startswith("val_") else "train_step"
            raise StudyError(f"the model's {step} returns no 'loss'; return it beside the metrics")


def _shown(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
