"""The learning rate of a run: scaled by the number of ranks, with an optional warm-up, decay, or plateaus."""

from collections.abc import Iterable
from typing import Any

from study.experiment.definition import RunDefinition
from study.training import layer_settings
from study.training.communicator import Communicator

COLLAPSED_PENALTY = 2.0  # factor of the weight decay in a collapse (PRACE guide to deep learning, 2019, 6.2.7)
STEP_FACTOR = 0.1  # as Goyal et al. reduce it
CYCLE_LEAST = 0.25  # of the largest rate; Smith, section 3.3, has a third or a quarter
PLATEAU_FACTOR = 0.1  # these two as in CANDLE's nt3_baseline_keras2.py
PLATEAU_IMPROVEMENT = 1e-4  # of the loss, at least; a smaller one is none


def scaled(run: RunDefinition, size: int) -> float:
    """One rank's learning rate, times the ranks under ``learning_rate_scaling: linear`` (icpp2019, 2.3.2)."""
    rate = run.learning_rate
    return rate * size if run["learning_rate_scaling"] == "linear" else rate


def rate_at(run: RunDefinition, size: int, step: int, steps_per_epoch: int) -> float:
    """The learning rate of training step ``step`` (from 0): the warm-up's, then the scaled rate x `decay_factor`."""
    if step < (steps := _warmup_steps(run, steps_per_epoch)):
        return warmup_rate(run, size, step, steps)
    return scaled(run, size) * decay_factor(run, step, steps_per_epoch)


def warmup_rate(run: RunDefinition, size: int, step: int, steps: int) -> float:
    """The learning rate of step ``step`` (from 0) of a warm-up of ``steps`` steps.

    As in Goyal et al. (arXiv:1706.02677, section 2.2). Gradual: it grows linearly, step by step, from the rate of one
    rank to the scaled one, so that large scaled rates do not ruin the first updates. Constant: it is the rate of one
    rank. By epoch: that of one rank in the first epoch, and larger by an equal amount in each of the next, so that it
    reaches the scaled one after the warm-up (PRACE guide to deep learning, 2019, section 3.3).
    """
    first, last, kind = run.learning_rate, scaled(run, size), run.parameters.get("warmup")
    if kind == "constant":
        return first
    if kind == "by_epoch":
        epochs = run["warmup_epochs"]
        return first + (last - first) * (step * epochs // steps) / epochs
    return first + (last - first) * min(1.0, (step + 1) / steps)


def momentum_at(run: RunDefinition, size: int, step: int, steps_per_epoch: int) -> float:
    """The momentum of step ``step`` under ``warmup: momentum_corrected``.

    The velocity contains the learning rate of the step before; where the rate changes, the momentum is multiplied by
    new rate / old rate (Goyal et al., section 3, remark 2).
    """
    momentum = run.benchmark["momentum"]
    if not 0 < step < _warmup_steps(run, steps_per_epoch):
        return momentum
    return momentum * rate_at(run, size, step, steps_per_epoch) / rate_at(run, size, step - 1, steps_per_epoch)


def decay_factor(run: RunDefinition, step: int, steps_per_epoch: int) -> float:
    """By which the scaled learning rate is multiplied in step ``step`` (from 0), after the warm-up.

    step: a tenth of the rate before, every ``decay_epochs`` epochs of the run. linear: from 1 in the first step after
    the warm-up by equal amounts towards 0, which a further step would have. cyclic: triangles of ``decay_epochs`` that
    begin after the warm-up, from `CYCLE_LEAST` to 1 and back (Smith, arXiv:1506.01186, section 3). collapsed: linear,
    but in the last ``decay_epochs`` it falls to 0 quadratically (PRACE guide to deep learning, 2019, 6.2.7).
    """
    decay, epoch_steps = run.parameters.get("learning_rate_decay", "none"), steps_per_epoch
    if decay == "none":
        return 1.0
    length = run["decay_epochs"] * epoch_steps
    if decay == "step":
        return STEP_FACTOR ** (step // length)
    warmup = _warmup_steps(run, epoch_steps)
    done, steps = step - warmup, run.derived.epochs_per_rank * epoch_steps - warmup
    if decay == "cyclic":
        phase = done % length / length
        return CYCLE_LEAST + (1 - CYCLE_LEAST) * (1 - abs(2 * phase - 1))
    left = (steps - done) / steps
    if decay == "collapsed" and steps - done < length:
        return length / steps * ((steps - done) / length) ** 2
    return left


def first_collapsed_epoch(run: RunDefinition) -> int | None:
    """The epoch, from 0, with which the collapse of ``learning_rate_decay: collapsed`` begins; None without one."""
    if run.parameters.get("learning_rate_decay") != "collapsed":
        return None
    return run.derived.epochs_per_rank - run["decay_epochs"]


def _warmup_steps(run: RunDefinition, steps_per_epoch: int) -> int:
    return run["warmup_epochs"] * steps_per_epoch


def make_momentum_variable(optimizer: Any, run: RunDefinition) -> None:
    """Let the momentum of ``optimizer`` (SGD) be changed while it trains, where `schedule` will."""
    import tensorflow as tf

    if run.parameters.get("warmup") == "momentum_corrected":
        optimizer.momentum = tf.Variable(optimizer.momentum, trainable=False, dtype=tf.float32)


def schedule(run: RunDefinition, size: int, steps_per_epoch: int, epochs_before: int = 0) -> list[Any]:
    """Keras callbacks, one or none, that set learning rate and momentum before each step in which they change.

    epochs_before: the number of epochs that a resumed run has already trained.
    """
    import tf_keras as keras

    decays = run.parameters.get("learning_rate_decay", "none") != "none"
    kind, warmup = run.parameters.get("warmup", "gradual"), _warmup_steps(run, steps_per_epoch)
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
