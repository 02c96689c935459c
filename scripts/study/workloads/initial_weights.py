"""Initial weights, the same in every framework: functions of a seed and of the layer's number.

Shapes are Keras's: (..., inputs, outputs), where the first axes are those of a convolution's window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.data.order import Purpose, shares, stream

TRUNCATED = 0.87962566103423978  # standard deviation of a standard normal distribution that is cut off at -2 and 2
BLOCK = 1 << 20  # weights that are drawn at once
Shape = tuple[int, ...]
Weights = NDArray[np.float32]
Numbers = NDArray[np.float64]


def glorot_uniform(shape: Shape, seed: int, layer: int) -> Weights:
    """Uniform within +-sqrt(6 / (inputs + outputs)) (Glorot and Bengio, AISTATS 2010), Keras's default."""
    limit = np.sqrt(6 / sum(_fans(shape)))
    return _drawn(shape, seed, layer, lambda drawn: (2 * drawn - 1) * limit)


def he_normal(shape: Shape, seed: int, layer: int) -> Weights:
    """Normal with variance 2 / inputs, cut off at twice the standard deviation (He et al., arXiv:1502.01852)."""
    from scipy.special import ndtr, ndtri

    low, deviation = ndtr(-2.0), np.sqrt(2 / _fans(shape)[0]) / TRUNCATED
    return _drawn(shape, seed, layer, lambda drawn: ndtri(low + drawn * (1 - 2 * low)) * deviation)


def normal(shape: Shape, seed: int, layer: int, deviation: float) -> Weights:
    """Normal around 0 with a standard deviation."""
    from scipy.special import ndtri

    least = 2.0**-54  # of 0 the result would be infinite
    return _drawn(shape, seed, layer, lambda drawn: ndtri(np.maximum(drawn, least)) * deviation)


def _drawn(shape: Shape, seed: int, layer: int, weights: Callable[[Numbers], Any]) -> Weights:
    """weights: from numbers from 0 to 1."""
    found, words = np.empty(int(np.prod(shape)), np.float32), stream(seed, Purpose.WEIGHTS, layer)
    for first in range(0, len(found), BLOCK):
        part = found[first : first + BLOCK]
        part[:] = weights(shares(words.random_raw(len(part))))
    return found.reshape(shape)


def _fans(shape: Shape) -> tuple[int, int]:
    window = int(np.prod(shape[:-2]))
    return window * shape[-2], window * shape[-1]
