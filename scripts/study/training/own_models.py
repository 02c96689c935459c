"""What a user's own model may do, and under which keys: the rest is refused at the run's start, in one line.

A promise of this project, such as averaged gradients, holds for every model, or the run is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.experiment.definition import RunDefinition
from study.training.roles import HOROVOD, strategy_of

LOOPS = ("fit", "evaluate", "make_train_function", "make_test_function")  # which this project's loops replace
# TensorFlow's operations that draw from a state of their own; the stateless ones take a seed.
RANDOM = ("Random", "Multinomial", "StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal", "Rng")


@contextlib.contextmanager
def fresh_names() -> Iterator[None]:
    """In the block, Keras names layers and metrics as if they were the first of the process.

    Keras numbers what has the same class (``auc``, ``auc_1``) over all models of a process. So the name of a metric, or
    of an output, would depend on what else was made.
    """
    from tf_keras.src import backend

    numbers = backend.get_default_graph_uid_map()
    before = dict(numbers)
    numbers.clear()
    try:
        yield
    finally:
        for name, number in before.items():
            numbers[name] = max(number, numbers[name])


def overrides(model: Any, name: str) -> bool:
    """Whether a model has a method of its own in place of Keras's."""
    import tf_keras as keras

    usual = getattr(keras.Model, name)
    return name in vars(model) or getattr(type(model), name) is not usual


def check(model: Any, run: RunDefinition) -> None:
    """Raise `StudyError` for a model as built that cannot be trained as the run promises. Call before it is compiled.

    Its own ``train_step`` is run as it is, in one process per rank, by Keras's loop and by this project's.
    """
    who = f"benchmark {run.benchmark['name']}: the model {type(model).__name__}"
    if getattr(model, "optimizer", None) is not None:
        raise StudyError(
            f"{who} is compiled already; leave that out of build_model: optimizer and loss are the YAML's, and a "
            "loaded model takes compile=False"
        )
    if not model.built:
        raise StudyError(f"{who} has no weights yet; call build((None, *shape)) in build_model")
    if not model.trainable_weights:
        raise StudyError(f"{who} has no weights to train; set trainable of a layer")
    for name in LOOPS:
        if overrides(model, name):
            raise StudyError(f"{who} has a method {name} of its own, which is not supported; use train_step")
    if overrides(model, "train_step") and (why := _no_own_step(run)):
        raise StudyError(f"{who} has a train_step of its own: {why}; use add_loss or a layer, or leave out the key")


def _no_own_step(run: RunDefinition) -> str | None:
    """The key under which a model's own training step would not do what it promises, or None."""
    parameters = run.parameters
    if strategy_of(run) != HOROVOD:
        return f"strategy: {strategy_of(run)} scales the loss of Keras's own step only"
    if run.emulated_ranks > 1:
        return "emulated_ranks makes the steps of all ranks itself"
    if parameters.get("backward_passes_per_step", 1) > 1:
        return "backward_passes_per_step adds up the gradients of Keras's own step only"
    if parameters.get("precision", "float32") == "mixed_float16":
        return "precision: mixed_float16 scales the loss of Keras's own step only"
    return None


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
        self.draws = sorted(set(_random_operations(concrete.graph)))
        known = {each.ref() for each in (*model.variables, *model.optimizer.variables)}  # dropout reads the step
        self.hidden = [each for each in concrete.graph.variables if each.ref() not in known]
        own = [*model.variables, *self.hidden]
        before = [each.numpy() for each in own]
        first = _values(concrete(sample))
        changed = [not np.array_equal(each.numpy(), array, equal_nan=_is_float(array))
                   for each, array in zip(own, before, strict=True)]  # fmt: skip
        second = _values(concrete(sample)) if any(changed) else first
        for variable, array in zip(own, before, strict=True):
            variable.assign(array)
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


def _is_float(array: Any) -> bool:
    return np.issubdtype(np.asarray(array).dtype, np.inexact)


def _values(outputs: Any) -> list[np.ndarray]:
    import tensorflow as tf

    return [np.asarray(tf.cast(each, tf.float32)) for each in tf.nest.flatten(outputs)]


def _random_operations(graph: Any) -> Iterator[str]:
    """The types of the operations that draw numbers from a state of their own, also those in functions within."""
    found = graph.as_graph_def()
    for nodes in (found.node, *(function.node_def for function in found.library.function)):
        yield from (node.op for node in nodes if node.op.startswith(RANDOM))


def check_state(model: Any, run: RunDefinition, shape: tuple[int, ...]) -> list[Any]:
    """Raise `StudyError` if emulated ranks or a resumed run would not train as real, undisturbed ranks do.

    shape: of a batch of the model's input. Returns the variables of `State`; none if the run does not need them.
    """
    import tensorflow as tf

    key = "emulated_ranks" if run.emulated_ranks > 1 else "checkpoint_epochs" if run["checkpoint_epochs"] else None
    if key is None:
        return []
    sample = tf.convert_to_tensor(np.random.default_rng(0).random(shape, np.float32))
    found, who = State(model, sample), f"benchmark {run.benchmark['name']}"
    if found.draws:
        raise StudyError(
            f"{who}: {key}: a layer draws random numbers from a state of its own ({', '.join(found.draws)}), which is "
            "not in the model's variables; use study.data.randomness.dropout, or stateless operations"
        )
    if key == "emulated_ranks":
        if found.changes_weights:
            raise StudyError(f"{who}: {key}: a layer changes trained weights in its forward pass; use real ranks")
    elif found.is_changed_hidden:
        raise StudyError(f"{who}: {key}: a layer has a state that is not in the model's variables; set it to 0")
    elif found.steers_training and run.ranks > 1:
        raise StudyError(
            f"{who}: {key}: training depends on a state that differs between ranks, and checkpoints hold rank 0's; "
            "set it to 0, or use one rank"
        )
    return found.variables


def keep_compiled(model: Any, optimizer: Any, run: RunDefinition) -> None:
    """Raise `StudyError` if the model's own ``compile`` has put another optimizer in place of the run's."""
    if model.optimizer is not optimizer:
        raise StudyError(
            f"benchmark {run.benchmark['name']}: the model {type(model).__name__} has a compile of its own that "
            "replaces the optimizer, whose gradients are averaged; leave it out"
        )
