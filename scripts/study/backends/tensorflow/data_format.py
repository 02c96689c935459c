"""The network with its channels first, under the grid key ``data_format``."""

from __future__ import annotations

from typing import Any

import numpy as np

from study.backends.tensorflow import precision
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition


def arrange_channels(model: Any, run: RunDefinition) -> Any:
    """``model`` in the run's data format; raises `StudyError` if TensorFlow lacks its operations here."""
    if run.parameters.get("data_format", "channels_last") == "channels_last":
        return model
    if run.machine["gpus_per_rank"] == 0:
        _check_cpu(precision.get_policy_name(run).removeprefix("mixed_"))
    return move_channels_first(model)


def _check_cpu(number_type: str) -> None:
    """Raise `StudyError` if TensorFlow cannot train with the channels first on this CPU."""
    if _can_train(number_type):
        return
    if number_type != "float32":
        raise StudyError(
            f"data_format: on this CPU TensorFlow cannot train with channels_first in {number_type}; use "
            "precision: float32, or channels_last"
        )
    raise StudyError(
        "data_format: on this CPU TensorFlow cannot train with channels_first, since it does not use oneDNN; switch "
        'oneDNN on in the machine\'s file (environment: {TF_ENABLE_ONEDNN_OPTS: "1"}), or use channels_last'
    )


def _can_train(number_type: str) -> bool:
    """True if a convolution and a pooling with their gradients can be computed with the channels first.

    That depends on the CPU, and TensorFlow has no public function for it.
    """
    import tensorflow as tf

    @tf.function
    def step(maps: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch([maps, weights])
            outputs = tf.nn.conv2d(maps, weights, 1, "SAME", data_format="NCHW")
            outputs = tf.nn.max_pool2d(outputs, 2, 2, "SAME", data_format="NCHW")
        return tape.gradient(outputs, [maps, weights])

    try:
        step(tf.zeros((2, 3, 4, 4), number_type), tf.zeros((3, 3, 3, 2), number_type))
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.NotFoundError):
        return False
    return True


def move_channels_first(model: Any) -> Any:
    """Make a network with the layers and weights of ``model`` that computes with the channels first.

    It takes the same batches, and flattens its maps in the same order, so that the weights are those of ``model``.
    """
    import tf_keras as keras

    if not getattr(model, "_is_graph_network", False) or len(model.inputs) != 1 or len(model.inputs[0].shape) < 3:
        raise StudyError(
            "data_format: channels_first needs a Sequential or functional model with one input of maps; use "
            "channels_last"
        )
    shape = model.input_shape[1:]
    moved = keras.layers.Input((shape[-1], *shape[:-1]))
    network = keras.models.clone_model(model, input_tensors=[moved], clone_function=_move_layer_channels_first)
    axes = (len(shape), *range(1, len(shape)))
    wrapped = keras.Sequential([keras.layers.Input(shape), keras.layers.Permute(axes), network])
    wrapped.set_weights(model.get_weights())
    _check_same_outputs(model, wrapped, shape)
    return wrapped


def _check_same_outputs(model: Any, moved: Any, shape: tuple[int, ...]) -> None:
    """Raise `StudyError` if the network gives other outputs than ``model``: a layer may have axes of its own."""
    import tensorflow as tf

    x = np.random.default_rng(0).random((2, *shape), np.float32)
    pairs = zip(tf.nest.flatten(model(x)), tf.nest.flatten(moved(x)), strict=True)
    if not all(np.allclose(tf.cast(one, tf.float32), tf.cast(other, tf.float32), rtol=0.05, atol=0.01)
               for one, other in pairs):  # fmt: skip
        raise StudyError(
            "data_format: with its channels first the model gives other outputs, since a layer has axes that are not "
            "those of its configuration; use channels_last"
        )


def _move_layer_channels_first(layer: Any) -> Any:
    """Make the same layer for maps with the channels first."""
    settings = layer.get_config()
    if "data_format" in settings:
        settings["data_format"] = "channels_first"
    elif "axis" in settings:  # of batch normalisation and concatenation
        settings["axis"] = 1
    return layer.__class__.from_config(settings)
