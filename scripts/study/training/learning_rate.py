"""The learning rate of a run: scaled by the number of ranks, with an optional warm-up or reductions on a plateau."""

from collections.abc import Iterable
from typing import Any

from study.experiment.definition import RunDefinition
from study.training.communicator import Communicator

PLATEAU_FACTOR = 0.1  # these two as in CANDLE's nt3_baseline_keras2.py
PLATEAU_IMPROVEMENT = 1e-4  # of the loss, at least; a smaller one is none


def scaled(run: RunDefinition, size: int) -> float:
    """One rank's learning rate, times the ranks under ``learning_rate_scaling: linear`` (icpp2019, 2.3.2)."""
    rate = run.learning_rate
    return rate * size if run["learning_rate_scaling"] == "linear" else rate


def warmup_rate(run: RunDefinition, size: int, step: int, steps: int) -> float:
    """The learning rate of training step ``step`` (from 0) of a warm-up of ``steps`` steps.

    It grows linearly, step by step, from the rate of one rank to the scaled one, so that large scaled rates do not ruin
    the first updates (gradual warm-up, Goyal et al., arXiv:1706.02677, section 2.2).
    """
    first, last = run.learning_rate, scaled(run, size)
    return first + (last - first) * min(1.0, (step + 1) / steps)


def warmup(run: RunDefinition, size: int, steps_per_epoch: int, epochs_before: int = 0) -> list[Any]:
    """Keras callbacks, one or none, that set the learning rate before each step of the run's warm-up epochs.

    epochs_before: the number of epochs that a resumed run has already trained.
    """
    import tf_keras as keras

    steps = run["warmup_epochs"] * steps_per_epoch
    if steps == 0:
        return []

    class Warmup(keras.callbacks.Callback):
        """Sets the optimizer's learning rate step by step."""

        def __init__(self) -> None:
            super().__init__()
            self._step = epochs_before * steps_per_epoch

        def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
            if self._step < steps:
                self.model.optimizer.learning_rate.assign(warmup_rate(run, size, self._step, steps))
            self._step += 1

    return [Warmup()]


def reductions(losses: Iterable[float], patience: int) -> int:
    """How often the learning rate has been reduced after epochs with these validation losses.

    As Keras's ReduceLROnPlateau counts: one reduction after each ``patience`` epochs in a row without improvement.
    """
    best, waited, found = float("inf"), 0, 0
    for loss in losses:
        if loss < best - PLATEAU_IMPROVEMENT:
            best, waited = loss, 0
            continue
        waited += 1
        if waited == patience:
            waited, found = 0, found + 1
    return found


def on_plateau(
    run: RunDefinition, size: int, communicator: Communicator, losses_before: Iterable[float] = ()
) -> list[Any]:
    """Keras callbacks, one or none, that reduce the learning rate under ``plateau_epochs``.

    Each epoch's rate follows from the validation losses of all epochs before it, so a resumed run needs no other state.
    All ranks take rank 0's losses, and have equal rates even if the ranks' losses differ in rounding.

    losses_before: of the epochs that a resumed run has already trained.
    """
    import tf_keras as keras

    patience = run["plateau_epochs"]
    if patience == 0:
        return []

    class OnPlateau(keras.callbacks.Callback):
        """Sets the optimizer's learning rate before each epoch."""

        def __init__(self) -> None:
            super().__init__()
            self._losses = list(losses_before)

        def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            factor = PLATEAU_FACTOR ** reductions(self._losses, patience)
            self.model.optimizer.learning_rate.assign(scaled(run, size) * factor)

        def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            self._losses.append(communicator.gather((logs or {})["val_loss"])[0])

    return [OnPlateau()]
