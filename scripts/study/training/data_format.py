"""The network with its channels first, under the grid key ``data_format``."""

from __future__ import annotations

from typing import Any

from study.core.errors import StudyError
from study.experiment.definition import RunDefinition


def arranged(model: Any, run: RunDefinition) -> Any:
    """``model`` in the run's data format. Raises `StudyError` if TensorFlow has no such operations here."""
    if run.parameters.get("data_format", "channels_last") == "channels_last":
        return model
    from tensorflow.python.util import _pywrap_util_port

    if run.machine["gpus_per_rank"] == 0 and not _pywrap_util_port.IsMklEnabled():
        raise StudyError(
            "data_format: channels_first needs oneDNN on a CPU, which TensorFlow does not use on this one; use "
            "channels_last"
        )
    return channels_first(model)


def channels_first(model: Any) -> Any:
    """A network with the layers and weights of ``model`` that moves the channels of its input to the first axis.

    It takes the same batches, and flattens its maps in the same order, so that the weights are those of ``model``.
    """
    import tf_keras as keras

    shape = model.input_shape[1:]
    moved = keras.layers.Input((shape[-1], *shape[:-1]))
    network = keras.models.clone_model(model, input_tensors=[moved], clone_function=_with_channels_first)
    axes = (len(shape), *range(1, len(shape)))
    found = keras.Sequential([keras.layers.Input(shape), keras.layers.Permute(axes), network])
    found.set_weights(model.get_weights())
    return found


def _with_channels_first(layer: Any) -> Any:
    """The same layer for maps with the channels first."""
    settings = layer.get_config()
    if "data_format" in settings:
        settings["data_format"] = "channels_first"
    elif "axis" in settings:  # of batch normalisation and concatenation
        settings["axis"] = 1
    return layer.__class__.from_config(settings)
