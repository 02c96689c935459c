"""A local copy of a parameter server's model: the initial weights, and the evaluation, without TensorFlow's strategy.

With it a run begins with the weights that Horovod broadcasts from rank 0, and is evaluated on the same
batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from study.backends.tensorflow import initial_weights, metrics, model_state, own_models, seeds
from study.backends.tensorflow.input import make_batches
from study.backends.tensorflow.seeds import seed_dropout
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition
from study.workloads.base import Benchmark


class LocalReplica:
    """The local copy of ``model``, once `attach` has named it."""

    def __init__(self, benchmark: Benchmark, run: RunDefinition, shape: tuple[int, ...]) -> None:
        """Build the copy with rank 0's initial weights. shape: of one sample's input."""
        seeds.set_random_seed(run.derived.seed)
        with own_models.reset_keras_names():
            self._local = own_models.build_model(benchmark, run, shape)
        initial_weights.draw_weights(self._local, run.derived.seed)
        self._local.compile(loss=run.benchmark["loss"], metrics=metrics.make_metrics(benchmark))
        seed_dropout(self._local, run.derived.seed)  # its training step is traced for `has_sparse_gradients`
        self._batch_size, self._shape = run.derived.batch_size_per_rank, shape
        self._model: Any = None
        self._batches: dict[int, Any] = {}  # by sample source, which is evaluated once per epoch

    def attach(self, model: Any) -> None:
        """Take ``model`` as the distributed one, and give it the copy's weights."""
        self._model = model
        for variables, array in zip(_group_variables(model), self._local.get_weights(), strict=True):
            first = 0
            for part in variables:
                rows = part.shape[0] if len(variables) > 1 else 0
                part.assign(array[first : first + rows] if rows else array)
                first += rows

    def evaluate(self, samples: SampleSource) -> dict[str, float]:
        """Loss and metrics of the distributed model's weights on ``samples``."""
        metrics_by_name: dict[str, float] = {}
        self._local.set_weights(join_weights(self._model))

        def evaluate() -> None:
            if id(samples) not in self._batches:
                self._batches[id(samples)] = make_batches(samples, self._batch_size)
            metrics_by_name.update(self._local.evaluate(self._batches[id(samples)], verbose=0, return_dict=True))

        _run_without_strategy(evaluate)
        return metrics_by_name

    def has_sparse_gradients(self) -> bool:
        """True if the model has sparse gradients, which TensorFlow's strategy sends as such."""
        answers: list[bool] = []
        shape = (self._batch_size, *self._shape)
        _run_without_strategy(lambda: answers.append(model_state.has_sparse_gradients(self._local, shape)))
        return answers[0]


def _run_without_strategy(act: Callable[[], object]) -> None:
    """Run a function in a thread of its own, which has no strategy."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def join_weights(model: Any) -> list[np.ndarray]:
    """Read the weights of a model, and join the parts of those that are split over servers."""
    return [
        np.concatenate([part.numpy() for part in variables]) if len(variables) > 1 else variables[0].numpy()
        for variables in _group_variables(model)
    ]


def _group_variables(model: Any) -> list[list[Any]]:
    """Group the variables of a model by weight: several where TensorFlow has split it by its first axis, else one."""
    groups: list[list[Any]] = []
    containers: list[Any] = []
    for variable in model.weights:
        container = variable._sharded_container() if hasattr(variable, "_sharded_container") else None
        if container is not None and containers and containers[-1] is container:
            groups[-1].append(variable)
        else:
            groups.append([variable])
        containers.append(container)
    return groups
