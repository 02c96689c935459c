"""TensorFlow's input pipeline gives what NumPy gives: the same samples, in the same order, in each epoch."""

import numpy as np
import pytest
import tensorflow as tf

from study.backends.tensorflow import input
from study.backends.tensorflow.input import make_batches, make_gatherer
from study.data.order import EpochOrder
from study.data.samples import Arrays, Can, Joined, SampleSource

DRAWN = np.random.default_rng(1)
X, Y = DRAWN.random((23, 4), np.float32), DRAWN.random((23, 2), np.float32)
JOINED = Joined(X, (Y, X[:5]), (DRAWN.integers(23, size=23), DRAWN.integers(5, size=23)), Y)


class Own(SampleSource):
    """A source that no framework knows; its samples change at random: they are multiplied by a number of the epoch."""

    can = Can.RANDOM_ACCESS

    def __init__(self, x, y):
        self._x, self._y = x, y

    def __len__(self):
        return len(self._x)

    @property
    def shape(self):
        return self._x.shape[1:]

    def rows(self, chosen):
        x = self._x[chosen]
        return Own(x, x if self._y is self._x else self._y[chosen])

    def changes(self, chosen, epoch):
        return np.full((*chosen.shape, 1), epoch + 2)

    def batch(self, chosen, changes=None):
        x = self._x[chosen] * (1 if changes is None else changes.astype(np.float32))
        return x, x if self._y is self._x else self._y[chosen]


SOURCES = {
    "arrays": Arrays(X, Y),
    "autoencoder": Arrays(X, X),
    "part": Arrays(X, Y, np.arange(22, 0, -2)),
    "joined": JOINED,
    "part of joined": JOINED.rows(slice(3, 15)),
    "own": Own(X, Y),
    "own autoencoder": Own(X, X),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_gathered_batch_is_numpy_s(name):
    samples, chosen = SOURCES[name], np.array([3, 0, 3, 7])
    changes = (samples.changes(chosen, 4),) if samples.changes(chosen, 4).size else ()
    for graph in (False, True):
        gather = tf.function(make_gatherer(samples)) if graph else make_gatherer(samples)
        for given in ((), changes):
            found = gather(tf.constant(chosen), *map(tf.constant, given))
            wanted = samples.batch(chosen, *given)
            assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("buffer", [0, 5])
@pytest.mark.parametrize("name", SOURCES)
def test_epochs_follow_the_order_of_numpy(name, buffer, threads):
    samples, order = SOURCES[name], EpochOrder(7, 2, buffer)
    dataset = make_batches(samples, 5, order, at_once=threads)
    assert dataset.cardinality() == -(-len(samples) // 5)
    for epoch in (2, 3, 0):
        order.set(epoch)
        chosen = EpochOrder(7, epoch, buffer).positions(len(samples))
        wanted = samples.batch(chosen, samples.changes(chosen, epoch))
        found = [np.concatenate(arrays) for arrays in zip(*dataset, strict=True)]
        assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_an_epoch_asks_python_once(monkeypatch):
    asked = []
    positions = EpochOrder.positions
    monkeypatch.setattr(EpochOrder, "positions", lambda self, number: asked.append(number) or positions(self, number))
    order = EpochOrder(1)
    dataset = make_batches(SOURCES["arrays"], 2, order)
    assert len(list(dataset)) == 12 and asked == [23]


def test_epochs_follow_each_other_without_a_batch_over_their_end():
    samples = SOURCES["own"]
    drawn = input.make_epoch_drawing(samples, lambda epoch: (EpochOrder(1, epoch).positions(23), epoch))
    found = list(input.join_epochs(tf.data.Dataset.range(2), drawn, 10))
    assert [len(positions) for positions, _ in found] == [10, 10, 3] * 2
    assert [changes.numpy().ravel()[0] for _, changes in found] == [2] * 3 + [3] * 3
