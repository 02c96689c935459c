"""Keras's part of `study.backends.model_check`."""

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


class BuildingRank:
    """A `Collectives` of a rank that only builds its model; it notes which gradients the optimizer applies."""

    strategy, sends_sparse = None, False

    def __init__(self, size: int, number: int) -> None:
        self.size, self.rank = size, number
        self._applied: set[Any] = set()

    def distribute_optimizer(self, optimizer: Any, **options: Any) -> Any:
        """Have ``optimizer`` note which gradients it applies; nothing is averaged."""
        apply = optimizer.apply_gradients

        def apply_gradients(pairs: Any, *arguments: Any, **options: Any) -> Any:
            pairs = list(pairs)
            self._applied.update(variable.ref() for _, variable in pairs)
            return apply(pairs, *arguments, **options)

        optimizer.apply_gradients = apply_gradients
        return optimizer

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool:
        """True if the optimizer of the run applied gradients of all ``variables``."""
        return {each.ref() for each in variables} <= self._applied


def check_model(benchmark: Benchmark, run: RunDefinition, samples: SampleSource, _: int | None = None) -> None:
    """Raise `StudyError` if the model of a run does not keep what the run's keys promise."""
    import tf_keras as keras

    backend = keras.backend
    settings = [(backend.set_floatx, backend.floatx()), (backend.set_epsilon, backend.epsilon()),
                (backend.set_image_data_format, backend.image_data_format())]  # fmt: skip
    try:
        first, second = (_compile_for_rank(benchmark, run, samples.shape, number) for number in (0, 1))
        _check_compiled(first, run, samples)
        if run.ranks * run.emulated_ranks > 1:
            _check_same_outputs(first[0], second[0], (run.derived.batch_size_per_rank, *samples.shape))
    finally:
        keras.backend.clear_session()
        for set_to, value in settings:  # the next model is built as the first one is
            set_to(value)


def _compile_for_rank(
    benchmark: Benchmark, run: RunDefinition, shape: tuple[int, ...], number: int
) -> tuple[Any, BuildingRank]:
    """(The compiled model as rank ``number`` builds it, that rank)."""
    communicator = BuildingRank(run.ranks, number)
    own = os.environ.get("HOROVOD_RANK")
    os.environ["HOROVOD_RANK"] = str(number)  # by which a model may know its rank
    try:
        return compile_model(benchmark, run, cast("Collectives", communicator), shape), communicator
    finally:
        del os.environ["HOROVOD_RANK"]
        if own is not None:
            os.environ["HOROVOD_RANK"] = own


def _check_compiled(compiled: tuple[Any, BuildingRank], run: RunDefinition, samples: SampleSource) -> None:
    """Raise `StudyError` if the state, the steps or the metrics of a compiled model break a promise."""
    model, communicator = compiled
    model_state.check_state(model, run, (run.derived.batch_size_per_rank, *samples.shape))
    batch = model_state.describe_batch(samples)
    model_state.check_step(model, run, batch, communicator.has_averaged)
    metric_names.check_metric_names(_list_logged_names(model.test_step, batch, "test_step", run))
    metric_names.check_metric_names(_list_logged_names(model.train_step, batch, "train_step", run))


def _list_logged_names(step: Any, batch: Any, name: str, run: RunDefinition) -> list[str]:
    """The names that a step of the model logs: loss and metrics, including those of its outputs and layers."""
    import tensorflow as tf

    logs = tf.function(step).get_concrete_function(batch).structured_outputs
    if "loss" not in (logs or {}):
        raise StudyError(f"benchmark {run.benchmark['name']}: the model's {name} returns no 'loss'")
    return list(logs)


def _check_same_outputs(first: Any, second: Any, shape: tuple[int, ...]) -> None:
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
