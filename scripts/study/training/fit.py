"""Training itself: epochs, their times and order, the learning rate, and the checkpoints at their ends."""

import time

import pandas as pd

from study.core.errors import StudyError
from study.data.randomness import EpochOrder
from study.data.samples import batches
from study.instruments.phases import now
from study.training import checkpoints, learning_rate


def state(model):
    """The variables that make a model what it is, and its optimizer: what ranks share and checkpoints hold."""
    return [*model.variables, *model.optimizer.variables]


def resume(model, run, folder, ranks):
    """Let ``model`` go on from the run's latest checkpoint, read by rank 0, where there is one.

    Returns (epochs already trained, their rows of the history). The other ranks get the state by the broadcast that
    follows.
    """
    epochs, rows = 0, []
    if ranks.rank == 0:
        variables = state(model)
        found = checkpoints.latest(folder, labels(run), [tuple(variable.shape) for variable in variables])
        if found:
            epochs, arrays, rows = found
            for variable, array in zip(variables, arrays, strict=True):
                variable.assign(array)
            print(f"resumed after epoch {epochs}", flush=True)
    return ranks.gather((epochs, rows))[0]


def labels(run):
    """What a checkpoint must share with the run that resumes it: all that its weights come from."""
    return {key: run[key] for key in ("parameters", "derived", "benchmark", "dataset")}


def fit(model, data, run, folder, ranks, phases, resumed):
    """Train; one row an epoch, in a data frame with the columns of ``history.csv``.

    resumed: what `resume` returned. phases: the rank's log, for the checkpoints' share of the time.
    """
    batch_size = run["derived"]["batch_size_per_rank"]
    if batch_size > len(data.train):
        raise StudyError(f"batch_size: {batch_size} is larger than the {len(data.train)} training samples of a rank")
    epochs, rows = resumed
    seed = run["derived"]["seed"] + ranks.rank
    order = EpochOrder(seed, epochs) if run["benchmark"]["shuffle"] else None
    steps = -(-len(data.train) // batch_size)
    arrays = run["parameters"]["input_pipeline"] == "keras_arrays"
    every = run["parameters"]["checkpoint_epochs"] if ranks.rank == 0 else 0
    writer = checkpoints.Writer(folder, every, labels(run))
    times = _epoch_times(rows, ranks, order, writer, phases)
    model.fit(
        **(_arrays(data, batch_size, order) if arrays else _pipelines(data, batch_size, order)),
        initial_epoch=epochs,
        epochs=run["derived"]["epochs_per_rank"],
        callbacks=[*learning_rate.warmup(run, ranks.size, steps, epochs), times],
        verbose=0,
    )
    if every:
        with phases("checkpoint"):
            writer.close()
    return pd.DataFrame(times.rows)


def _pipelines(data, batch_size, order):
    """What Keras is given to train on under ``input_pipeline: tf_data``."""
    return {"x": batches(data.train, batch_size, order), "validation_data": batches(data.validation, batch_size)}


def _arrays(data, batch_size, order):
    """Likewise under ``keras_arrays``, as the benchmarks' own scripts do; Keras shuffles, by its own seed."""
    x, y = data.train.arrays()
    return {
        "x": x,
        "y": y,
        "batch_size": batch_size,
        "shuffle": order is not None,
        "validation_data": data.validation.arrays(),
    }


def _epoch_times(rows, ranks, order, writer, phases):
    """The Keras callback that does what there is to do at the ends of epochs, and keeps the rows of the history."""
    import tf_keras as keras

    class EpochTimes(keras.callbacks.Callback):
        """When each epoch began, its wall time, validation included, and the learning rate in force."""

        def __init__(self):
            super().__init__()
            self.rows = list(rows)

        def on_epoch_begin(self, epoch, logs=None):
            self._begun_wall, self._begun = now()

        def on_epoch_end(self, epoch, logs=None):
            seconds = (time.monotonic_ns() - self._begun) / 1e9
            rate = float(keras.backend.get_value(self.model.optimizer.learning_rate))
            row = {"epoch": epoch + 1, "time_s": seconds, **logs, "learning_rate": rate}
            self.rows.append(row | {"begin_wall_ns": self._begun_wall})
            if order:
                order.set(epoch + 1)
            if ranks.rank == 0:
                print(f"epoch {epoch + 1}/{self.params['epochs']}: {seconds:.2f} s, {_shown(logs)}", flush=True)
            if writer.is_due(epoch + 1) and epoch + 1 < self.params["epochs"]:
                with phases("checkpoint"):
                    writer.save(epoch + 1, [variable.numpy() for variable in state(self.model)], self.rows)

    return EpochTimes()


def _shown(metrics):
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
