"""The state of a model besides its weights, and its own training step, checked by its graph.

Under some keys a state that no variable holds, or gradients that are not averaged, would break the key's promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from study.backends.tensorflow import own_models
from study.backends.tensorflow.input import make_batches
from study.communication.roles import get_strategy
from study.core.errors import StudyError
from study.data.samples import Can, SampleSource
from study.experiment.definition import RunDefinition
from study.machines.run_layout import HOROVOD

# TensorFlow's operations that draw from a state of their own; the stateless ones take a seed.
RANDOM = ("Random", "Multinomial", "StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal", "Rng")
PYTHON = ("PyFunc", "EagerPyFunc")  # calls of Python, which may keep a state; PyFuncStateless is declared to have none


class LayerState:
    """The variables of a model that its layers change in training besides its weights, such as moving statistics.

    Args:
        model: compiled, with all variables.
        sample: a batch of its input, on which the model is tried.
    """

    def __init__(self, model: Any, sample: Any) -> None:
        import tensorflow as tf

        self._model = model
        forward = tf.function(lambda x: model(x, training=True))
        concrete = forward.get_concrete_function(sample)
        self.draws = list_stateful_operations(concrete.graph)
        self.differs_by_trace = _list_constants(concrete.graph) != _list_constants(_trace_forward(model, sample))
        known_refs = {each.ref() for each in (*model.variables, *model.optimizer.variables)}  # dropout reads the step
        self.hidden = [each for each in concrete.graph.variables if each.ref() not in known_refs]
        own = [*model.variables, *self.hidden]
        before = [each.numpy() for each in own]
        first = _to_float32_arrays(concrete(sample))
        changed = _compare_with(own, before)
        second = _to_float32_arrays(concrete(sample)) if any(changed) else first
        _restore(own, before)
        model(sample, training=False)
        self.is_changed_in_evaluation = any(_compare_with(own, before))
        _restore(own, before)
        trainable = {each.ref() for each in model.trainable_variables}
        self.changes_weights = any(
            is_changed and each.ref() in trainable for each, is_changed in zip(own, changed, strict=True)
        )
        self.is_changed_hidden = any(changed[len(model.variables) :])
        self.steers_training = not all(
            np.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
            for one, other in zip(first, second, strict=True)
        )

    @property
    def variables(self) -> list[Any]:
        """The variables that are not trained, whether or not a single batch changes them."""
        return [*self._model.non_trainable_variables, *self.hidden]


def has_sparse_gradients(model: Any, shape: tuple[int, ...]) -> bool:
    """True if the gradient of a weight is sparse, as of an embedding: of the rows that a batch uses. Traced only.

    shape: of a batch of the model's input.
    """
    import tensorflow as tf

    computed = []

    def compute_gradients(x: Any) -> None:
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(x, training=True))
            loss = tf.add_n([tf.reduce_sum(tf.cast(each, tf.float32)) for each in (*outputs, *model.losses)])
        computed.extend(tape.gradient(loss, model.trainable_variables))

    tf.function(compute_gradients).get_concrete_function(tf.TensorSpec(shape, tf.float32))
    return any(isinstance(each, tf.IndexedSlices) for each in computed)


def list_stateful_operations(graph: Any) -> list[str]:
    """List the types of a graph's operations that depend on a state outside the model's variables."""
    types = (node.op for node in _iterate_nodes(graph) if node.op.startswith(RANDOM) or node.op in PYTHON)
    return sorted(set(types))


def _iterate_nodes(graph: Any) -> Iterator[Any]:
    """Iterate over the operations of a graph and of the functions in it."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def _trace_forward(model: Any, sample: Any) -> Any:
    """Trace the forward pass of training; returns its graph."""
    import tensorflow as tf

    return tf.function(lambda x: model(x, training=True)).get_concrete_function(sample).graph


def _list_constants(graph: Any) -> list[bytes]:
    """The serialised constants of a graph, sorted."""
    return sorted(node.attr["value"].tensor.SerializeToString() for node in _iterate_nodes(graph) if node.op == "Const")


def _compare_with(variables: list[Any], before: list[np.ndarray]) -> list[bool]:
    """Whether each variable differs from its value before."""
    return [not np.array_equal(each.numpy(), array, equal_nan=_is_float(array))
            for each, array in zip(variables, before, strict=True)]  # fmt: skip


def _restore(variables: list[Any], before: list[np.ndarray]) -> None:
    """Give variables their values before."""
    for variable, array in zip(variables, before, strict=True):
        variable.assign(array)


def _is_float(array: Any) -> bool:
    """True for an array of floating-point or complex numbers."""
    return np.issubdtype(np.asarray(array).dtype, np.inexact)


def _to_float32_arrays(outputs: Any) -> list[np.ndarray]:
    """The outputs of a model as a flat list of float32 arrays."""
    import tensorflow as tf

    return [np.asarray(tf.cast(each, tf.float32)) for each in tf.nest.flatten(outputs)]


def check_state(model: Any, run: RunDefinition, shape: tuple[int, ...]) -> list[Any]:
    """Raise `StudyError` if emulated ranks or a resumed run would not train as real, undisturbed ranks do.

    shape: of a batch of the model's input. Returns the variables of `LayerState`; none if the run does not need them.
    """
    import tensorflow as tf

    key = _find_key(run)
    if key is None:
        return []
    sample = tf.convert_to_tensor(np.random.default_rng(0).random(shape, np.float32))
    state, who = LayerState(model, sample), f"benchmark {run.benchmark['name']}: {key}"
    if key == "strategy":
        if state.is_changed_in_evaluation:
            raise StudyError(f"{who}: a layer changes its state when it is evaluated, which a copy does; use horovod")
        return []
    _refuse_draws(state.draws, who, "a layer")
    if key == "emulated_ranks":
        if state.changes_weights:
            raise StudyError(f"{who}: a layer changes trained weights in its forward pass; use real ranks")
        if state.is_changed_in_evaluation:
            raise StudyError(f"{who}: a layer changes its state when it is evaluated; use real ranks")
        if state.differs_by_trace:
            raise StudyError(f"{who}: a layer has other constants each time it is traced; draw them in build_model")
    elif state.is_changed_hidden:
        raise StudyError(f"{who}: a layer has a state that is not in the model's variables; set it to 0")
    elif state.steers_training and run.ranks > 1:
        raise StudyError(
            f"{who}: training depends on a state that differs between ranks, and checkpoints hold rank 0's; "
            "set it to 0, or use one rank"
        )
    return state.variables


def _find_key(run: RunDefinition) -> str | None:
    """The grid key of the run under which the state of a model matters; None if there is none."""
    if run.emulated_ranks > 1:
        return "emulated_ranks"
    if run["checkpoint_epochs"]:
        return "checkpoint_epochs"
    return "strategy" if get_strategy(run) != HOROVOD else None


def _refuse_draws(draws: list[str], who: str, part: str) -> None:
    """Raise `StudyError` if a part of a model has operations that draw from a hidden state."""
    if draws:
        raise StudyError(
            f"{who}: {part} draws random numbers or calls Python ({', '.join(draws)}), whose state is not in the "
            "model's variables; use study.workloads.tensorflow.dropout, or stateless operations"
        )


def describe_batch(samples: SampleSource) -> Any:
    """`TensorSpec` of the arrays (x, y) of a batch of any size."""
    import tensorflow as tf

    few = samples if Can.STREAMED in samples.can else samples.rows(slice(0, 1))
    spec = make_batches(few, 1).element_spec
    return tf.nest.map_structure(lambda each: tf.TensorSpec((None, *each.shape[1:]), each.dtype), spec)


def check_step(model: Any, run: RunDefinition, batch: Any, has_averaged: Any) -> None:
    """Raise `StudyError` if a model's own ``train_step`` would not train as the run promises; it is traced, not run.

    Args:
        model: compiled, with all variables.
        run: its definition.
        batch: of `describe_batch`.
        has_averaged: as of `study.backends.tensorflow.gradient_averaging.Averaging`.
    """
    import tensorflow as tf

    if not own_models.overrides(model, "train_step"):
        return
    who = own_models.describe_model(model, run)
    traced = tf.function(model.train_step).get_concrete_function(batch)
    if "loss" not in (traced.structured_outputs or {}):
        raise StudyError(f"{who} has a train_step that returns no 'loss'; return it beside the metrics")
    if has_averaged(model.optimizer, model.trainable_variables) is False:
        raise StudyError(
            f"{who} has a train_step that does not apply the gradients of all its weights through self.optimizer; only "
            "these are averaged over the ranks"
        )
    if not run["checkpoint_epochs"]:
        return
    who = f"{who}: checkpoint_epochs"
    _refuse_draws(list_stateful_operations(traced.graph), who, "its train_step")
    own = (each for each in vars(model.optimizer).values() if isinstance(each, tf.Variable))  # the learning rate
    of_metrics = (each for metric in model.metrics for each in metric.variables)
    known_variables = (*model.variables, *model.optimizer.variables, *own, *of_metrics)
    refs = {each.ref() for each in known_variables}
    if hidden := [each.name for each in traced.graph.variables if each.ref() not in refs]:
        raise StudyError(
            f"{who}: its train_step uses {', '.join(hidden)}, which is not among the model's variables; make it an "
            "attribute of the model"
        )
