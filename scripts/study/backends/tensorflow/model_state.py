"""What a model keeps besides its weights, and what its own training step does, as far as its graph tells.

Under some keys a state that is nowhere noted, or gradients that are not averaged, would break what the key promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from study.backends.tensorflow import own_models
from study.backends.tensorflow.input import batches
from study.communication.roles import strategy_of
from study.core.errors import StudyError
from study.data.samples import Can, SampleSource
from study.experiment.definition import RunDefinition
from study.machines.run_layout import HOROVOD

# TensorFlow's operations that draw from a state of their own; the stateless ones take a seed.
RANDOM = ("Random", "Multinomial", "StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal", "Rng")
PYTHON = ("PyFunc", "EagerPyFunc")  # calls of Python, which may keep a state; PyFuncStateless is declared to have none


class State:
    """The variables of a model that its layers change in training besides its weights, such as moving statistics.

    Args:
        model: compiled, with all variables.
        sample: a batch of its input, by which it is seen what changes.
    """

    def __init__(self, model: Any, sample: Any) -> None:
        import tensorflow as tf

        self._model = model
        forward = tf.function(lambda x: model(x, training=True))
        concrete = forward.get_concrete_function(sample)
        self.draws = kept_outside(concrete.graph)
        self.differs_by_trace = _constants(concrete.graph) != _constants(_traced(model, sample))
        known = {each.ref() for each in (*model.variables, *model.optimizer.variables)}  # dropout reads the step
        self.hidden = [each for each in concrete.graph.variables if each.ref() not in known]
        own = [*model.variables, *self.hidden]
        before = [each.numpy() for each in own]
        first = _values(concrete(sample))
        changed = _changed(own, before)
        second = _values(concrete(sample)) if any(changed) else first
        _restore(own, before)
        model(sample, training=False)
        self.is_changed_in_evaluation = any(_changed(own, before))
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
        """Those that are not trained, whether or not a single batch changes them."""
        return [*self._model.non_trainable_variables, *self.hidden]


def has_sparse_gradients(model: Any, shape: tuple[int, ...]) -> bool:
    """Whether the gradient of a weight is sparse, as of an embedding: of the rows that a batch uses. It is traced only.

    shape: of a batch of the model's input.
    """
    import tensorflow as tf

    found = []

    def gradients(x: Any) -> None:
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(x, training=True))
            loss = tf.add_n([tf.reduce_sum(tf.cast(each, tf.float32)) for each in (*outputs, *model.losses)])
        found.extend(tape.gradient(loss, model.trainable_variables))

    tf.function(gradients).get_concrete_function(tf.TensorSpec(shape, tf.float32))
    return any(isinstance(each, tf.IndexedSlices) for each in found)


def kept_outside(graph: Any) -> list[str]:
    """The types of a graph's operations whose results depend on a state that no variable of the model holds."""
    found = (node.op for node in _nodes(graph) if node.op.startswith(RANDOM) or node.op in PYTHON)
    return sorted(set(found))


def _nodes(graph: Any) -> Iterator[Any]:
    """The operations of a graph, also those in functions within."""
    found = graph.as_graph_def()
    yield from found.node
    for function in found.library.function:
        yield from function.node_def


def _traced(model: Any, sample: Any) -> Any:
    import tensorflow as tf

    return tf.function(lambda x: model(x, training=True)).get_concrete_function(sample).graph


def _constants(graph: Any) -> list[bytes]:
    return sorted(node.attr["value"].tensor.SerializeToString() for node in _nodes(graph) if node.op == "Const")


def _changed(variables: list[Any], before: list[np.ndarray]) -> list[bool]:
    return [not np.array_equal(each.numpy(), array, equal_nan=_is_float(array))
            for each, array in zip(variables, before, strict=True)]  # fmt: skip


def _restore(variables: list[Any], before: list[np.ndarray]) -> None:
    for variable, array in zip(variables, before, strict=True):
        variable.assign(array)


def _is_float(array: Any) -> bool:
    return np.issubdtype(np.asarray(array).dtype, np.inexact)


def _values(outputs: Any) -> list[np.ndarray]:
    import tensorflow as tf

    return [np.asarray(tf.cast(each, tf.float32)) for each in tf.nest.flatten(outputs)]


def check_state(model: Any, run: RunDefinition, shape: tuple[int, ...]) -> list[Any]:
    """Raise `StudyError` if emulated ranks or a resumed run would not train as real, undisturbed ranks do.

    shape: of a batch of the model's input. Returns the variables of `State`; none if the run does not need them.
    """
    import tensorflow as tf

    key = _key(run)
    if key is None:
        return []
    sample = tf.convert_to_tensor(np.random.default_rng(0).random(shape, np.float32))
    found, who = State(model, sample), f"benchmark {run.benchmark['name']}: {key}"
    if key == "strategy":
        if found.is_changed_in_evaluation:
            raise StudyError(f"{who}: a layer changes its state when it is evaluated, which a copy does; use horovod")
        return []
    _refuse_draws(found.draws, who, "a layer")
    if key == "emulated_ranks":
        if found.changes_weights:
            raise StudyError(f"{who}: a layer changes trained weights in its forward pass; use real ranks")
        if found.is_changed_in_evaluation:
            raise StudyError(f"{who}: a layer changes its state when it is evaluated; use real ranks")
        if found.differs_by_trace:
            raise StudyError(f"{who}: a layer has other constants each time it is traced; draw them in build_model")
    elif found.is_changed_hidden:
        raise StudyError(f"{who}: a layer has a state that is not in the model's variables; set it to 0")
    elif found.steers_training and run.ranks > 1:
        raise StudyError(
            f"{who}: training depends on a state that differs between ranks, and checkpoints hold rank 0's; "
            "set it to 0, or use one rank"
        )
    return found.variables


def _key(run: RunDefinition) -> str | None:
    """The grid key that makes it matter what state a model keeps."""
    if run.emulated_ranks > 1:
        return "emulated_ranks"
    if run["checkpoint_epochs"]:
        return "checkpoint_epochs"
    return "strategy" if strategy_of(run) != HOROVOD else None


def _refuse_draws(draws: list[str], who: str, what: str) -> None:
    if draws:
        raise StudyError(
            f"{who}: {what} draws random numbers or calls Python ({', '.join(draws)}), whose state is not in the "
            "model's variables; use study.workloads.tensorflow.dropout, or stateless operations"
        )


def batch_of(samples: SampleSource) -> Any:
    """`TensorSpec` of (x, y) of a batch of any size."""
    import tensorflow as tf

    few = samples if Can.STREAMED in samples.can else samples.rows(slice(0, 1))
    spec = batches(few, 1).element_spec
    return tf.nest.map_structure(lambda each: tf.TensorSpec((None, *each.shape[1:]), each.dtype), spec)


def check_step(model: Any, run: RunDefinition, batch: Any, has_averaged: Any) -> None:
    """Raise `StudyError` if a model's own ``train_step`` would not train as the run promises; it is traced, not run.

    Args:
        model: compiled, with all variables.
        run: its definition.
        batch: of `batch_of`.
        has_averaged: as of `study.backends.tensorflow.gradient_averaging.Averaging`.
    """
    import tensorflow as tf

    if not own_models.overrides(model, "train_step"):
        return
    who = own_models.name_of(model, run)
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
    _refuse_draws(kept_outside(traced.graph), who, "its train_step")
    own = (each for each in vars(model.optimizer).values() if isinstance(each, tf.Variable))  # the learning rate
    of_metrics = (each for metric in model.metrics for each in metric.variables)
    known = (*model.variables, *model.optimizer.variables, *own, *of_metrics)
    refs = {each.ref() for each in known}
    if hidden := [each.name for each in traced.graph.variables if each.ref() not in refs]:
        raise StudyError(
            f"{who}: its train_step uses {', '.join(hidden)}, which is not among the model's variables; make it an "
            "attribute of the model"
        )
