"""The initial weights of Keras's layers, by `study.workloads.initial_weights`: those that other frameworks have too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from study.workloads import initial_weights


def draw(model: Any, seed: int) -> None:
    """Give the kernels of ``model`` their initial weights, by the seed and the number of their layer.

    Kernels whose initialiser is another one, or has a seed of its own, stay as Keras has drawn them.
    """
    layers = [each for each in model._flatten_layers(include_self=False) if _is_drawn(each)]
    for number, layer in enumerate(layers):
        drawn = _function(layer.kernel_initializer)
        if drawn is not None:
            layer.kernel.assign(drawn(tuple(layer.kernel.shape), seed, number))


def _is_drawn(layer: Any) -> bool:
    """Whether a layer is one of those that have a kernel in every framework."""
    import tf_keras as keras

    return type(layer) in (keras.layers.Dense, keras.layers.Conv1D, keras.layers.Conv2D) and layer.built


def _function(initializer: Any) -> Callable[..., Any] | None:
    """The function that draws as ``initializer`` does."""
    from tf_keras import initializers

    if getattr(initializer, "seed", None) is not None:
        return None
    if type(initializer) is initializers.GlorotUniform:
        return initial_weights.glorot_uniform
    if type(initializer) is initializers.HeNormal:
        return initial_weights.he_normal
    if type(initializer) is initializers.RandomNormal and initializer.mean == 0:
        return functools.partial(initial_weights.normal, deviation=initializer.stddev)
    return None
