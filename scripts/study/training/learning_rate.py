"""The learning rate of a run: scaled by the number of ranks, with an optional warm-up."""

from typing import Any

from study.experiment.definition import RunDefinition


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
