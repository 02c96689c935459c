"""The learning rate of a run: scaled by the ranks, and reached over the first epochs where asked for."""


def scaled(run, size):
    """The benchmark's learning rate, times the ranks under ``learning_rate_scaling: linear`` (icpp2019, 2.3.2)."""
    rate = run["benchmark"]["learning_rate"]
    return rate * size if run["parameters"]["learning_rate_scaling"] == "linear" else rate


def warmup_rate(run, size, step, steps):
    """The learning rate of training step ``step`` (from 0) of a warm-up of ``steps`` steps.

    It grows by the same amount a step from the rate of one rank to the scaled one, so that large scaled rates do not
    ruin the first updates (gradual warm-up, Goyal et al., arXiv:1706.02677, section 2.2).
    """
    first, last = run["benchmark"]["learning_rate"], scaled(run, size)
    return first + (last - first) * min(1.0, (step + 1) / steps)


def warmup(run, size, steps_per_epoch, epochs_before=0):
    """Keras callbacks, one or none, that set the learning rate before each step of the run's warm-up epochs.

    epochs_before: those that a resumed run has behind it.
    """
    import tf_keras as keras

    steps = run["parameters"]["warmup_epochs"] * steps_per_epoch
    if steps == 0:
        return []

    class Warmup(keras.callbacks.Callback):
        """Sets the optimizer's learning rate step by step."""

        def __init__(self):
            super().__init__()
            self._step = epochs_before * steps_per_epoch

        def on_train_batch_begin(self, batch, logs=None):
            if self._step < steps:
                self.model.optimizer.learning_rate.assign(warmup_rate(run, size, self._step, steps))
            self._step += 1

    return [Warmup()]
