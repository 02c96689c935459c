"""Mixed precision: layers compute in 16 bits, under the grid key ``precision``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from study.experiment.definition import RunDefinition


def get_policy_name(run: RunDefinition) -> str:
    """Keras's name of the run's policy of precision."""
    return run.parameters.get("precision", "float32")


@contextlib.contextmanager
def set_policy(run: RunDefinition) -> Iterator[None]:
    """Have layers made within the block with the run's policy; their weights are float32 with each."""
    import tf_keras as keras

    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(get_policy_name(run))
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def keep_output_in_float32(model: Any, run: RunDefinition) -> None:
    """Have the layers that give the output compute in float32, so that the loss is not rounded to 16 bits.

    As Keras's guide says of the last layer (https://www.tensorflow.org/guide/mixed_precision). An operation on tensors,
    such as a sum of two heads, does not cast: the layers that feed it do. The outputs are float32 whatever gives them.
    """
    if get_policy_name(run) == "float32":
        return
    for layer in _find_last_layers(model):
        layer._set_dtype_policy("float32")
    call = model.call

    def call_in_float32(*arguments: Any, **options: Any) -> Any:
        import tensorflow as tf

        return tf.nest.map_structure(
            lambda each: tf.cast(each, tf.float32) if each.dtype.is_floating else each, call(*arguments, **options)
        )

    model.call = call_in_float32


def _find_last_layers(model: Any) -> list[Any]:
    """The layers that give the outputs of a model; none if it has no graph of layers."""
    if not getattr(model, "_is_graph_network", False):
        return []
    layers: dict[int, Any] = {}
    for output in model._output_layers:
        _add_casting_layers(output, layers)
    return list(layers.values())


def _add_casting_layers(layer: Any, layers: dict[int, Any]) -> None:
    """Add ``layer`` to ``layers`` if it casts its inputs, else the layers before it that do."""
    if hasattr(layer, "_output_layers"):
        for output in layer._output_layers:
            _add_casting_layers(output, layers)
    elif layer._autocast:
        layers[id(layer)] = layer
    else:
        for node in layer._inbound_nodes:
            for before in _as_list(node.inbound_layers):
                if id(before) not in layers:
                    _add_casting_layers(before, layers)


def _as_list(layers: Any) -> list[Any]:
    """One or several layers as a list."""
    return list(layers) if isinstance(layers, list | tuple) else [layers]


def add_loss_scale(optimizer: Any, run: RunDefinition) -> Any:
    """``optimizer``; for float16 in Keras's wrapper, which scales the loss so that small gradients do not vanish."""
    import tf_keras as keras

    return keras.mixed_precision.LossScaleOptimizer(optimizer) if get_policy_name(run) == "mixed_float16" else optimizer


def unwrap_loss_scale(optimizer: Any) -> Any:
    """The optimizer that makes the steps, without the wrapper of `add_loss_scale`."""
    return getattr(optimizer, "inner_optimizer", optimizer)
