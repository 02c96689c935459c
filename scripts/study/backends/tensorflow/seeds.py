"""The seeds of Python's, NumPy's, TensorFlow's and Keras's generators, and of dropout.

The dropout masks of a step follow from a run's seed, the rank, the layer and the step alone.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.data import order


class KerasRandom(random.Random):
    """Draws what `random.Random` draws. tf_keras 2.18 asks for randint(1, 1e9), and Python 3.12 refuses a float."""

    def randint(self, a: float, b: float) -> int:
        """Draw a whole number from ``a`` to ``b``, which may be floats with whole values."""
        return super().randint(int(a), int(b))


def set_random_seed(seed: int) -> None:
    """Set the seeds as ``tf_keras.utils.set_random_seed`` does, for each version of Python."""
    import tf_keras as keras
    from tf_keras.src import backend

    keras.utils.set_random_seed(seed)
    backend._SEED_GENERATOR.generator = KerasRandom(seed)


def seed_dropout(model: Any, seed: int) -> None:
    """Make the masks of all dropout layers of ``model`` follow from ``seed`` and the optimizer's step."""
    set_dropout_seeds(model, order.derive_dropout_seeds(seed))


def set_dropout_seeds(model: Any, seeds: Any) -> None:
    """Set the seeds of the dropout layers of ``model``. seeds: by `order.derive_dropout_seeds`, or an int64 tensor."""
    import tensorflow as tf

    step = model.optimizer.iterations
    layers = model._flatten_layers(include_self=False)  # also of a network within the model
    for index, layer in enumerate(layer for layer in layers if type(layer).__name__ == "Dropout"):
        layer.next_seed = lambda index=index: tf.stack([seeds[index], step])


def draw_seeds_by_rank(seed: int, ranks: int) -> NDArray[np.int64]:
    """Draw the dropout seeds of several ranks of a run, (ranks, layers). seed: the run's."""
    return np.stack([order.derive_dropout_seeds(order.derive_rank_seed(seed, rank)) for rank in range(ranks)])
