"""Mixed precision: layers compute in 16 bits, under the grid key ``precision``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from study.experiment.definition import RunDefinition


def of(run: RunDefinition) -> str:
    """Keras's name of the run's policy."""
    return run.parameters.get("precision", "float32")


@contextlib.contextmanager
def policy(run: RunDefinition) -> Iterator[None]:
    """In the block, layers are made with the run's policy; their weights are float32 with each."""
    import tf_keras as keras

    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(of(run))
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def keep_output_in_float32(model: Any, run: RunDefinition) -> None:
    """Let the layers that give the output compute in float32, so that the loss is not rounded to 16 bits.

    As Keras's guide says of the last layer (https://www.tensorflow.org/guide/mixed_precision). An operation on tensors,
    such as a sum of two heads, does not cast: the layers that feed it do. The outputs are float32 whatever gives them.
    """
    if of(run) == "float32":
        return
    for layer in _last_layers(model):
        layer._set_dtype_policy("float32")
    call = model.call

    def in_float32(*arguments: Any, **options: Any) -> Any:
        import tensorflow as tf

        return tf.nest.map_structure(
            lambda each: tf.cast(each, tf.float32) if each.dtype.is_floating else each, call(*arguments, **options)
        )

    model.call = in_float32


def _last_layers(model: Any) -> list[Any]:
    """The layers that give the outputs of a model; of one without a graph of layers, none can be told."""
    if not getattr(model, "_is_graph_network", False):
        return []
    found: dict[int, Any] = {}
    for output in model._output_layers:
        _add_casting(output, found)
    return list(found.values())


def _add_casting(layer: Any, found: dict[int, Any]) -> None:
    """Add ``layer``, if it casts its inputs, else those that do before it."""
    if hasattr(layer, "_output_layers"):
        for output in layer._output_layers:
            _add_casting(output, found)
    elif layer._autocast:
        found[id(layer)] = layer
    else:
        for node in layer._inbound_nodes:
            for before in _as_list(node.inbound_layers):
                if id(before) not in found:
                    _add_casting(before, found)


def _as_list(layers: Any) -> list[Any]:
    return list(layers) if isinstance(layers, list | tuple) else [layers]


def with_loss_scale(optimizer: Any, run: RunDefinition) -> Any:
    """``optimizer``; with float16 in Keras's wrapper that scales the loss, so that small gradients do not vanish."""
    import tf_keras as keras

    return keras.mixed_precision.LossScaleOptimizer(optimizer) if of(run) == "mixed_float16" else optimizer


def without_loss_scale(optimizer: Any) -> Any:
    """The optimizer that makes the steps: the one within, if `with_loss_scale` has wrapped it."""
    return getattr(optimizer, "inner_optimizer", optimizer)
