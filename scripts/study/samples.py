"""Samples ready for Keras: a set of them, its parts, and the batches that a rank trains on."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Arrays:
    """Samples held in memory. x: float32, samples first. y: likewise; the same object as x for an autoencoder."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self):
        return len(self.x)

    def rows(self, chosen):
        """The samples at positions or a slice ``chosen``, as samples."""
        x = self.x[chosen]
        return Arrays(x, x if self.y is self.x else self.y[chosen])

    def gatherer(self):
        """A function from positions, a tensor, to a batch (x, y) of tensors; the arrays are copied once."""
        import tensorflow as tf

        x = tf.convert_to_tensor(self.x)
        y = x if self.y is self.x else tf.convert_to_tensor(self.y)

        def gather(chosen):
            return tf.gather(x, chosen), tf.gather(y, chosen)

        return gather


@dataclass(frozen=True)
class Joined:
    """Samples that are joined from tables a batch at a time, so that the joined matrix is never in memory.

    values: float32 (samples, k), the samples' own inputs. tables: float32 matrices, rows x features. keys: for each
    table an integer array (samples,), the row of each sample. y: float32 (samples, outputs). A sample's input is its
    rows of all tables, then its values.
    """

    values: np.ndarray
    tables: tuple
    keys: tuple
    y: np.ndarray

    def __len__(self):
        return len(self.y)

    def rows(self, chosen):
        """The samples at positions or a slice ``chosen``, as samples; the tables are shared."""
        return Joined(self.values[chosen], self.tables, tuple(key[chosen] for key in self.keys), self.y[chosen])

    def gatherer(self):
        """A function from positions, a tensor, to a batch (x, y) of tensors."""
        import tensorflow as tf

        values, y = tf.convert_to_tensor(self.values), tf.convert_to_tensor(self.y)
        tables = [tf.convert_to_tensor(table) for table in self.tables]
        keys = [tf.convert_to_tensor(key) for key in self.keys]

        def gather(chosen):
            rows = [tf.gather(table, tf.gather(key, chosen)) for table, key in zip(tables, keys, strict=True)]
            return tf.concat([*rows, tf.gather(values, chosen)], axis=1), tf.gather(y, chosen)

        return gather


def part(samples, rank, size):
    """One rank's part of ``samples`` under ``sharding: by_rank``: every ``size``-th, the same number on all ranks.

    What does not divide evenly, fewer than ``size`` samples at the end, is left out, so that all ranks make the same
    number of steps and none waits for a gradient that never comes.
    """
    each = samples_per_rank(len(samples), size)
    return samples.rows(slice(rank, each * size, size))


def samples_per_rank(samples, size):
    """The number of samples of each rank's part."""
    return samples // size


def batches(samples, batch_size, order=None):
    """A ``tf.data.Dataset`` of batches, the last one may be smaller.

    order: the `study.randomness.EpochOrder` of an epoch's samples; none leaves them as they are. What Keras makes of
    arrays handed to ``fit`` is the same but for tf.data's autotuning, whose thread ends only after its next sleep: with
    it ``fit`` returned up to ten seconds after its last epoch, at random, on some ranks and not on others.
    """
    import tensorflow as tf

    number = len(samples)
    with tf.device("/CPU:0"):
        if order is None:
            positions = tf.data.Dataset.range(number).batch(batch_size)
        else:
            once = tf.data.Dataset.range(1)  # so that the order is asked for anew in each epoch
            positions = once.flat_map(
                lambda _: tf.data.Dataset.from_tensor_slices(order.positions(number)).batch(batch_size)
            ).apply(tf.data.experimental.assert_cardinality(-(-number // batch_size)))
        dataset = positions.map(samples.gatherer())
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(1).with_options(options)
