"""Checks of a user's own model: what breaks a key's promise is refused at the run's start, in one line.

A promise of this project, such as averaged gradients, holds for every model, or the run is refused.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from study.backends.tensorflow import precision
from study.communication.roles import get_strategy
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition
from study.machines.run_layout import HOROVOD
from study.workloads.base import Benchmark

LOOPS = ("fit", "evaluate", "make_train_function", "make_test_function")  # which this project's loops replace
STEPS = {"train_step": "a train_step", "compute_loss": "a compute_loss"}  # which strategies do not scale
REMEDY = "use add_loss or a layer, or leave out the key"


@contextlib.contextmanager
def reset_keras_names() -> Iterator[None]:
    """Have Keras name layers and metrics, within the block, as if they were the first of the process.

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
    """True if a model has a method of its own in place of Keras's."""
    import tf_keras as keras

    usual = getattr(keras.Model, name)
    return name in vars(model) or getattr(type(model), name) is not usual


def build_model(benchmark: Benchmark, run: RunDefinition, shape: tuple[int, ...]) -> Any:
    """Build the benchmark's model and check it (`check_model`), not compiled. shape: of one sample's input.

    What NumPy and Python draw meanwhile is the same on all ranks: it may become a constant of the model, which no
    broadcast makes equal. Weights are drawn by Keras and TensorFlow, whose seeds differ.
    """
    states = np.random.get_state(), random.getstate()
    np.random.seed(run.derived.seed)
    random.seed(run.derived.seed)
    try:
        with _check_settings_kept(f"benchmark {run.benchmark['name']}"):
            model = benchmark.build_model(shape)
    finally:
        np.random.set_state(states[0])
        random.setstate(states[1])
    check_model(model, run)
    return model


@contextlib.contextmanager
def _check_settings_kept(who: str) -> Iterator[None]:
    """Raise `StudyError` if the block, which builds a model, changes a setting of the whole process.

    Such a setting would hold for all other parts of a run too, and no key would show it.
    """
    before = _read_settings()
    yield
    if changed := [name for name, value in _read_settings().items() if value != before[name]]:
        raise StudyError(
            f"{who}: building it changes a setting of the whole process ({', '.join(changed)}); leave that out, or "
            "give it to the layers"
        )


def _read_settings() -> dict[str, Any]:
    """The present settings of TensorFlow and Keras that hold for the whole process."""
    import tensorflow as tf
    import tf_keras as keras
    from tensorflow.python.eager import context

    return {
        "floatx": keras.backend.floatx(),
        "epsilon": keras.backend.epsilon(),
        "image_data_format": keras.backend.image_data_format(),
        "global_policy": keras.mixed_precision.global_policy().name,
        "tf.random.set_seed": context.global_seed(),
        "run_functions_eagerly": tf.config.functions_run_eagerly(),
        "jit": tf.config.optimizer.get_jit(),
        "optimizer.set_experimental_options": str(sorted(tf.config.optimizer.get_experimental_options().items())),
        "enable_tensor_float_32_execution": tf.config.experimental.tensor_float_32_execution_enabled(),
        "set_synchronous_execution": tf.config.experimental.get_synchronous_execution(),
        "threading": (
            tf.config.threading.get_intra_op_parallelism_threads(),
            tf.config.threading.get_inter_op_parallelism_threads(),
        ),
    }


def check_model(model: Any, run: RunDefinition) -> None:
    """Raise `StudyError` for a model as built that cannot be trained as the run promises. Call before it is compiled.

    Its own ``train_step`` is run as it is, in one process per rank, by Keras's loop and by this project's.
    """
    who = describe_model(model, run)
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
    for find_fault in (_find_input_fault, _find_number_type_fault, _find_statistics_fault, _find_step_fault):
        if reason := find_fault(model, run):
            raise StudyError(f"{who} {reason}")


def describe_model(model: Any, run: RunDefinition) -> str:
    """The name of a model in messages."""
    return f"benchmark {run.benchmark['name']}: the model {type(model).__name__}"


def _find_input_fault(model: Any, run: RunDefinition) -> str | None:
    """The reason why batches would not fit the model, or None; inputs are known of a graph of layers only."""
    inputs = (getattr(model, "inputs", None) or []) if getattr(model, "_is_graph_network", False) else []
    if len(inputs) > 1:
        return f"has {len(inputs)} inputs, and a sample is one array; give it one input, and take it apart in the model"
    if get_strategy(run) != HOROVOD and any(getattr(layer, "stateful", False) for layer in model._flatten_layers()):
        return f"has a stateful layer, and strategy: {get_strategy(run)} evaluates a copy; use strategy: horovod"
    fixed, batch = (inputs[0].shape[0] if inputs else None), run.derived.batch_size_per_rank
    if fixed is not None and fixed != batch:
        return f"takes batches of {fixed} samples, and a rank of this run has batches of {batch}; change batch_size"
    return None


def _find_number_type_fault(model: Any, run: RunDefinition) -> str | None:
    """The layer or weight whose number type contradicts the key ``precision``, as a message, or None."""
    promised_types = {"float32", precision.get_policy_name(run).removeprefix("mixed_")}
    for layer in model._flatten_layers():
        layer_type = layer.compute_dtype
        if layer_type and layer_type.startswith(("float", "bfloat")) and layer_type not in promised_types:
            return (
                f"has a layer {layer.name} that computes in {layer_type}, which "
                f"precision: {precision.get_policy_name(run)} does not tell; leave out its "
                "dtype and set the key "
                "precision"
            )
    for variable in model.trainable_weights:
        if variable.dtype.base_dtype.name != "float32":
            return f"has weights in {variable.dtype.base_dtype.name} ({variable.name}); weights are float32"
    return None


def _find_statistics_fault(model: Any, run: RunDefinition) -> str | None:
    """The layer of batch normalisation that asks in vain for statistics of all ranks, as a message, or None."""
    if run.ranks * run.emulated_ranks == 1:
        return None
    for layer in model._flatten_layers():
        if getattr(layer, "_synchronized", False) or getattr(layer, "synchronized", False):
            return (
                f"has a layer {layer.name} with synchronized=True, which knows TensorFlow's replicas and no ranks; "
                "leave that out"
            )
    return None


def _find_step_fault(model: Any, run: RunDefinition) -> str | None:
    """The key whose promise a model's own training step or loss would break, as a message, or None."""
    parameters, strategy = run.parameters, get_strategy(run)
    own = next((description for name, description in STEPS.items() if overrides(model, name)), None)
    if own is None:
        return None
    if strategy != HOROVOD:
        return f"has {own} of its own: strategy: {strategy} scales the loss of Keras's own step only; {REMEDY}"
    if not overrides(model, "train_step"):
        return None
    why = None
    if run.emulated_ranks > 1:
        why = "emulated_ranks makes the steps of all ranks itself"
    elif parameters.get("backward_passes_per_step", 1) > 1:
        why = "backward_passes_per_step adds up the gradients of Keras's own step only"
    elif precision.get_policy_name(run) == "mixed_float16":
        why = "precision: mixed_float16 scales the loss of Keras's own step only"
    return why and f"has {own} of its own: {why}; {REMEDY}"


def check_optimizer_kept(model: Any, optimizer: Any, run: RunDefinition) -> None:
    """Raise `StudyError` if the model's own ``compile`` has put another optimizer in place of the run's."""
    if model.optimizer is not optimizer:
        raise StudyError(
            f"{describe_model(model, run)} has a compile of its own that replaces the optimizer, whose gradients are "
            "averaged; leave it out"
        )
