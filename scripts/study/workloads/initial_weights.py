"""Initial weights, the same in every framework: functions of a seed and of the layer's number.

Shapes are Keras's: (..., inputs, outputs), where the first axes are those of a convolution's window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.data.order import Purpose, make_generator, to_shares

TRUNCATED = 0.87962566103423978  # standard deviation of a standard normal distribution that is cut off at -2 and 2
BLOCK = 1 << 20  # weights that are drawn at once
Shape = tuple[int, ...]
Weights = NDArray[np.float32]
Numbers = NDArray[np.float64]


def draw_glorot_uniform(shape: Shape, seed: int, layer: int) -> Weights:
    """Draw weights uniformly within +-sqrt(6 / (inputs + outputs)) (Glorot and Bengio, AISTATS 2010), as Keras does."""
    limit = np.sqrt(6 / sum(_count_fans(shape)))
    return _draw(shape, seed, layer, lambda drawn: (2 * drawn - 1) * limit)


def draw_he_normal(shape: Shape, seed: int, layer: int) -> Weights:
    """Draw normal weights of variance 2 / inputs, cut off at 2 standard deviations (He et al., arXiv:1502.01852)."""
    from scipy.special import ndtr, ndtri

    low, deviation = ndtr(-2.0), np.sqrt(2 / _count_fans(shape)[0]) / TRUNCATED
    return _draw(shape, seed, layer, lambda drawn: ndtri(low + drawn * (1 - 2 * low)) * deviation)


def draw_normal(shape: Shape, seed: int, layer: int, deviation: float) -> Weights:
    """Draw normal weights around 0 with a standard deviation."""
    from scipy.special import ndtri

    least = 2.0**-54  # of 0 the result would be infinite
    return _draw(shape, seed, layer, lambda drawn: ndtri(np.maximum(drawn, least)) * deviation)


def _draw(shape: Shape, seed: int, layer: int, weights: Callable[[Numbers], Any]) -> Weights:
    """Draw a layer's weights. weights: the function from uniform numbers from 0 to 1 to weights."""
    drawn, words = np.empty(int(np.prod(shape)), np.float32), make_generator(seed, Purpose.WEIGHTS, layer)
    for first in range(0, len(drawn), BLOCK):
        part = drawn[first : first + BLOCK]
        part[:] = weights(to_shares(words.random_raw(len(part))))
    return drawn.reshape(shape)


def _count_fans(shape: Shape) -> tuple[int, int]:
    """(inputs, outputs) of a unit or filter, by which its initial weights are scaled."""
    window = int(np.prod(shape[:-2]))
    return window * shape[-2], window * shape[-1]
