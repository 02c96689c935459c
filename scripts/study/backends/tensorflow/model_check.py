"""Of a model in Keras, what `study.backends.model_check` asks."""

from __future__ import annotations

import os
from typing import Any, cast

import numpy as np

from study.backends.tensorflow import model_state
from study.backends.tensorflow.build import compile_model
from study.communication.collectives import Collectives
from study.core.errors import StudyError
from study.data.samples import SampleSource
from study.experiment import metric_names
from study.experiment.definition import RunDefinition
from study.workloads.base import Benchmark


class Alone:
    """A `Collectives` of a rank that only builds its model; it notes which gradients the optimizer applies."""

    strategy, sends_sparse = None, False

    def __init__(self, size: int, number: int) -> None:
        self.size, self.rank = size, number
        self._applied: set[Any] = set()

    def distributed_optimizer(self, optimizer: Any, **options: Any) -> Any:
        """``optimizer``, whose gradients nobody averages."""
        apply = optimizer.apply_gradients

        def apply_gradients(pairs: Any, *arguments: Any, **options: Any) -> Any:
            pairs = list(pairs)
            self._applied.update(variable.ref() for _, variable in pairs)
            return apply(pairs, *arguments, **options)

        optimizer.apply_gradients = apply_gradients
        return optimizer

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool:
        """Whether gradients of all ``variables`` were applied by the optimizer of the run."""
        return {each.ref() for each in variables} <= self._applied


def check(benchmark: Benchmark, run: RunDefinition, samples: SampleSource) -> None:
    """Raise `StudyError` for what the model of a run does not keep."""
    import tf_keras as keras

    backend = keras.backend
    settings = [(backend.set_floatx, backend.floatx()), (backend.set_epsilon, backend.epsilon()),
                (backend.set_image_data_format, backend.image_data_format())]  # fmt: skip
    try:
        first, second = (_compiled(benchmark, run, samples.shape, number) for number in (0, 1))
        _check(first, run, samples)
        if run.ranks * run.emulated_ranks > 1:
            _check_same(first[0], second[0], (run.derived.batch_size_per_rank, *samples.shape))
    finally:
        keras.backend.clear_session()
        for set_to, value in settings:  # the next model is built as the first one is
            set_to(value)


def _compiled(benchmark: Benchmark, run: RunDefinition, shape: tuple[int, ...], number: int) -> tuple[Any, Alone]:
    communicator = Alone(run.ranks, number)
    own = os.environ.get("HOROVOD_RANK")
    os.environ["HOROVOD_RANK"] = str(number)  # by which a model may know its rank
    try:
        return compile_model(benchmark, run, cast("Collectives", communicator), shape), communicator
    finally:
        del os.environ["HOROVOD_RANK"]
        if own is not None:
            os.environ["HOROVOD_RANK"] = own


def _check(compiled: tuple[Any, Alone], run: RunDefinition, samples: SampleSource) -> None:
    model, communicator = compiled
    model_state.check_state(model, run, (run.derived.batch_size_per_rank, *samples.shape))
    batch = model_state.batch_of(samples)
    model_state.check_step(model, run, batch, communicator.has_averaged)
    metric_names.check(_logged(model.test_step, batch, "test_step", run))
    metric_names.check(_logged(model.train_step, batch, "train_step", run))


def _logged(step: Any, batch: Any, name: str, run: RunDefinition) -> list[str]:
    """The names of what a step of the model logs: loss, metrics, also those of its outputs and layers."""
    import tensorflow as tf

    logs = tf.function(step).get_concrete_function(batch).structured_outputs
    if "loss" not in (logs or {}):
        raise StudyError(f"benchmark {run.benchmark['name']}: the model's {name} returns no 'loss'")
    return list(logs)


def _check_same(first: Any, second: Any, shape: tuple[int, ...]) -> None:
    """Raise `StudyError` if two ranks with the same weights compute different outputs. shape: of a batch of inputs."""
    import tensorflow as tf

    weights = first.get_weights()
    if [each.shape for each in weights] != [each.shape for each in second.get_weights()]:
        raise StudyError("two ranks build models with other weights; the model must not depend on the rank")
    second.set_weights(weights)
    x = np.random.default_rng(0).random(shape, np.float32)
    pairs = zip(*(tf.nest.flatten(each(x, training=False)) for each in (first, second)), strict=True)
    if not all(np.allclose(tf.cast(one, tf.float32), tf.cast(other, tf.float32), rtol=1e-3, atol=1e-5, equal_nan=True)
               for one, other in pairs):  # fmt: skip
        raise StudyError(
            "two ranks with the same weights give different outputs: build_model draws numbers that are no weights, or "
            "depends on the rank; keep them in add_weight(trainable=False), which is broadcast"
        )
