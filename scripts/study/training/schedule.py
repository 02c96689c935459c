"""The callbacks that set learning rate, momentum and penalties while Keras trains."""

from collections.abc import Iterable
from typing import Any

from study.backends.tensorflow import layer_settings
from study.communication.collectives import Communicator
from study.experiment.definition import RunDefinition
from study.experiment.learning_rate import (
    PLATEAU_FACTOR,
    first_collapsed_epoch,
    momentum_at,
    rate_at,
    reductions,
    scaled,
    warmup_steps,
)

COLLAPSED_PENALTY = 2.0  # factor of the weight decay in a collapse (PRACE guide to deep learning, 2019, 6.2.7)


def schedule(run: RunDefinition, size: int, steps_per_epoch: int, epochs_before: int = 0) -> list[Any]:
    """Keras callbacks, one or none, that set learning rate and momentum before each step in which they change.

    epochs_before: the number of epochs that a resumed run has already trained.
    """
    import tf_keras as keras

    decays = run.parameters.get("learning_rate_decay", "none") != "none"
    kind, warmup = run.parameters.get("warmup", "gradual"), warmup_steps(run, steps_per_epoch)
    if not (decays or warmup):
        return []
    # A gradual warm-up ends with the scaled rate; after the others the next step has yet to get rate or momentum.
    changes = warmup if kind == "gradual" else warmup + 1

    class Schedule(keras.callbacks.Callback):
        """Sets the optimizer's learning rate step by step."""

        def __init__(self) -> None:
            super().__init__()
            self._step = epochs_before * steps_per_epoch
            self._set: float | None = None

        def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
            if decays or self._step < changes:
                rate = rate_at(run, size, self._step, steps_per_epoch)
                if rate != self._set:
                    self.model.optimizer.learning_rate.assign(rate)
                    self._set = rate
                if kind == "momentum_corrected" and self._step < changes:
                    self.model.optimizer.momentum.assign(momentum_at(run, size, self._step, steps_per_epoch))
            self._step += 1

    return [Schedule()]


def collapsed_penalty(run: RunDefinition, steps_per_epoch: int, epochs_before: int) -> list[Any]:
    """Keras callbacks, one or none, that multiply the penalties on the weights in the steps of a collapse.

    Not in validation, so that its loss is one quantity over all epochs.
    """
    import tf_keras as keras

    epoch = first_collapsed_epoch(run)
    if epoch is None:
        return []
    first = epoch * steps_per_epoch

    class CollapsedPenalty(keras.callbacks.Callback):
        """Sets the factor of the penalties before each step and for validation.

        By `on_batch_begin`, of training only: a profile counts `on_train_batch_begin` as Horovod's callbacks.
        """

        def __init__(self) -> None:
            super().__init__()
            self._step = epochs_before * steps_per_epoch
            self._factor: Any = None

        def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
            self._factor = layer_settings.penalty_factor(self.model)

        def on_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
            if self._step >= first:
                self._factor.assign(COLLAPSED_PENALTY)
            self._step += 1

        def on_test_begin(self, logs: dict[str, float] | None = None) -> None:
            self._factor.assign(1.0)

        def on_train_end(self, logs: dict[str, float] | None = None) -> None:
            self._factor.assign(1.0)

    return [CollapsedPenalty()]


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
