"""The initial weights of Keras's layers, by `study.workloads.initial_weights`: those that other frameworks have too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from study.workloads import initial_weights


def draw_weights(model: Any, seed: int) -> None:
    """Draw the initial weights of the kernels of ``model``, by the seed and the number of their layer.

    Kernels whose initialiser is another one, or has a seed of its own, stay as Keras has drawn them.
    """
    layers = [each for each in model._flatten_layers(include_self=False) if _has_common_kernel(each)]
    for number, layer in enumerate(layers):
        draw = _find_drawing_function(layer.kernel_initializer)
        if draw is not None:
            layer.kernel.assign(draw(tuple(layer.kernel.shape), seed, number))


def _has_common_kernel(layer: Any) -> bool:
    """True if a layer is of a type that has a kernel in every framework."""
    import tf_keras as keras

    return type(layer) in (keras.layers.Dense, keras.layers.Conv1D, keras.layers.Conv2D) and layer.built


def _find_drawing_function(initializer: Any) -> Callable[..., Any] | None:
    """The function of this project that draws as a Keras ``initializer`` does; None if there is none."""
    from tf_keras import initializers

    if getattr(initializer, "seed", None) is not None:
        return None
    if type(initializer) is initializers.GlorotUniform:
        return initial_weights.draw_glorot_uniform
    if type(initializer) is initializers.HeNormal:
        return initial_weights.draw_he_normal
    if type(initializer) is initializers.RandomNormal and initializer.mean == 0:
        return functools.partial(initial_weights.draw_normal, deviation=initializer.stddev)
    return None
