"""The seeds of Python's, NumPy's and TensorFlow's global generators, and of Keras's own."""

from __future__ import annotations

import random


class KerasRandom(random.Random):
    """Draws what `random.Random` draws. tf_keras 2.18 asks for randint(1, 1e9), and Python 3.12 refuses a float."""

    def randint(self, a: float, b: float) -> int:
        """A whole number from ``a`` to ``b``, which must be whole too."""
        return super().randint(int(a), int(b))


def set_random_seed(seed: int) -> None:
    """What ``tf_keras.utils.set_random_seed`` does, for each version of Python."""
    import tf_keras as keras
    from tf_keras.src import backend

    keras.utils.set_random_seed(seed)
    backend._SEED_GENERATOR.generator = KerasRandom(seed)
