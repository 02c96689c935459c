"""Settings that a run changes in the layers of a built model, whoever wrote them: momentum, penalties on weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from study.core.errors import StudyError
from study.experiment.definition import RunDefinition


def set_batch_norm_momentum(model: Any, run: RunDefinition) -> None:
    """Give all layers of batch normalisation the momentum of ``batch_norm_momentum``, if the run has one.

    Raises:
        StudyError: the model has no such layer.
    """
    from tf_keras.src.layers.normalization.batch_normalization import BatchNormalizationBase

    momentum = run.parameters.get("batch_norm_momentum", 0)
    if not momentum:
        return
    layers = [layer for layer in _list_layers(model) if isinstance(layer, BatchNormalizationBase)]
    if not layers:
        raise StudyError(
            f"batch_norm_momentum: the model of benchmark {run.benchmark['name']} has no Keras layer of batch "
            "normalisation; leave it out"
        )
    for layer in layers:
        layer.momentum = float(momentum)


def add_penalty_factor(model: Any) -> Any:
    """Add a variable, 1 at first, by which the penalties on the weights (L2 and the like) in the loss are multiplied.

    Call before a training step is traced. The variable is no weight of the model.
    """
    import tensorflow as tf

    factor = tf.Variable(1.0, trainable=False, dtype=tf.float32)

    def scale(penalty: Callable[[], Any]) -> Callable[[], Any]:
        def compute_scaled() -> Any:
            value = penalty()
            return None if value is None else value * tf.cast(factor.read_value(), value.dtype)

        return compute_scaled

    for layer in _list_layers(model):
        layer._callable_losses = [scale(each) for each in layer._callable_losses]
    return factor


def _list_layers(model: Any) -> list[Any]:
    """All layers of a model, including those within others."""
    return list(model._flatten_layers())
