"""Samples ready for Keras: a set of them, its parts, and the batches that a rank trains on."""

from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64  # bytes, of the memory of TensorFlow's own tensors


@dataclass(frozen=True)
class Arrays:
    """Samples in memory or in a mapped file.

    x: float32, samples first. y: likewise; the same object as x for an autoencoder. order: the positions in them of the
    samples, None for all as they are; so that a part of a mapped file is not copied.
    """

    x: np.ndarray
    y: np.ndarray
    order: np.ndarray | None = None

    def __len__(self):
        return len(self.x) if self.order is None else len(self.order)

    def rows(self, chosen):
        """The samples at positions or a slice ``chosen``, as samples; the arrays are shared."""
        order = np.arange(len(self.x)) if self.order is None else self.order
        return Arrays(self.x, self.y, order[chosen])

    def arrays(self):
        """(x, y) of the samples in their order, copied where there is one."""
        if self.order is None:
            return self.x, self.y
        x = self.x[self.order]
        return x, x if self.y is self.x else self.y[self.order]

    def gatherer(self):
        """A function from positions, a tensor, to a batch (x, y) of tensors."""
        import tensorflow as tf

        x = _tensor(self.x)
        y = x if self.y is self.x else _tensor(self.y)
        order = None if self.order is None else tf.convert_to_tensor(self.order)

        def gather(chosen):
            if order is not None:
                chosen = tf.gather(order, chosen)
            found = tf.gather(x, chosen)
            return found, found if y is x else tf.gather(y, chosen)

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

        values, y = _tensor(self.values), _tensor(self.y)
        tables = [_tensor(table) for table in self.tables]
        keys = [_tensor(key) for key in self.keys]

        def gather(chosen):
            rows = [tf.gather(table, tf.gather(key, chosen)) for table, key in zip(tables, keys, strict=True)]
            return tf.concat([*rows, tf.gather(values, chosen)], axis=1), tf.gather(y, chosen)

        return gather


def _tensor(array):
    """A tensor of ``array``: the same memory where TensorFlow can use it, a mapped file for one; else a copy."""
    import tensorflow as tf

    if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0 and array.size:
        return tf.experimental.dlpack.from_dlpack(np.asarray(array).__dlpack__())
    return tf.convert_to_tensor(array)


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

    order: the `study.data.randomness.EpochOrder` of an epoch's samples; none leaves them as they are. What Keras makes of
    arrays handed to ``fit`` is the same but for tf.data's autotuning, whose thread ends only after its next sleep: with
    it ``fit`` returned up to ten seconds after its last epoch, at random, on some ranks and not on others. And but for
    its graph optimisations, which copy all samples once more and take a second of the first step for it.
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
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.prefetch(1).with_options(options)
