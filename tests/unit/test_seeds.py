"""Keras draws the seeds of initialisers and dropout from a generator that works in each version of Python."""

import random
import warnings

import pytest

from study.backends.tensorflow import seeds


def test_keras_draws_the_seeds_that_it_always_drew():
    from tf_keras.src.utils import tf_utils

    seeds.set_random_seed(7)
    expected = random.Random(7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python 3.11 warns of a float, 3.12 raises TypeError
        drawn = [tf_utils.get_random_seed() for _ in range(3)]
    assert drawn == [expected.randint(1, 10**9) for _ in range(3)]


@pytest.mark.parametrize("other", ["numpy", "tensorflow", "random"])
def test_the_global_generators_are_seeded(other):
    import numpy as np
    import tensorflow as tf

    draw = {"numpy": np.random.rand, "tensorflow": lambda: float(tf.random.uniform([])), "random": random.random}[other]
    seeds.set_random_seed(7)
    first = draw()
    seeds.set_random_seed(7)
    assert draw() == first
