"""Sample sources: the samples that a model trains on, one rank's part of them, and batches."""

from __future__ import annotations

import contextlib
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from study.data.input_measures import InputMeasures
from study.data.randomness import EpochOrder, OrdersByRank

ALIGNMENT = 64  # bytes; alignment of TensorFlow's own tensors


class Can(enum.Flag):
    """What a sample source can do."""

    RANDOM_ACCESS = enum.auto()  # give the samples at any positions
    IN_MEMORY = enum.auto()  # hand over all its samples as arrays
    MAPPED = enum.auto()  # its arrays are mapped files, whose pages are loaded when they are used
    STREAMED = enum.auto()  # give the samples in its own order only


class SampleSource(ABC):
    """Samples, each an input of any number of dimensions and an output. ``can`` declares the source's capabilities."""

    can: Can

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's input, as the model takes it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, chosen: np.ndarray | slice) -> SampleSource:
        """The samples at the positions or slice ``chosen``; arrays are shared. Needs `Can.RANDOM_ACCESS`."""

    @abstractmethod
    def gatherer(self) -> Callable[[Any], tuple[Any, Any]]:
        """A function from positions, a tensor, to a batch (x, y) of tensors. Needs `Can.RANDOM_ACCESS`."""

    def gatherer_by_epoch(self) -> Callable[[Any, Any], tuple[Any, Any]]:
        """A `gatherer` for training, of samples that may change at random: from positions and the epoch, a scalar."""
        gather = self.gatherer()
        return lambda chosen, epoch: gather(chosen)

    def gatherer_in(self, order: EpochOrder | OrdersByRank) -> Callable[[Any], tuple[Any, Any]]:
        """The same, of the positions alone; the epoch is that of ``order``."""
        gather = self.gatherer_by_epoch()
        return lambda chosen: gather(chosen, order.epoch)

    @property
    def is_streamed(self) -> bool:
        """Whether samples are read or decoded while the model trains, so that it may have to wait for them."""
        return False

    @property
    def threads(self) -> int:
        """How many batches are made at once; 0 for one after the other, on TensorFlow's own threads."""
        return 0

    def cached(self) -> SampleSource:
        """The same samples, each of which stays in memory once it is read."""
        return self

    def augmented(self, kind: str, light_from: int | None = None) -> SampleSource:
        """The same samples with another augmentation in training, of samples that have one; see the grid key.

        light_from: the epoch, from 0, from which on it is light; None for never.
        """
        return self

    def batches(self, batch_size: int, measures: InputMeasures | None = None) -> Any:
        """A ``tf.data.Dataset`` of batches, in the source's own order. Needs `Can.STREAMED`."""
        raise TypeError(f"{type(self).__name__} has no order of its own")

    def reading_errors(self) -> contextlib.AbstractContextManager[None]:
        """A block that takes batches, in which an error of the source is raised as what it is."""
        return contextlib.nullcontext()

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of all samples in their order. Needs `Can.IN_MEMORY`."""
        raise TypeError(f"{type(self).__name__} cannot be handed over as arrays")


@dataclass(frozen=True)
class Arrays(SampleSource):
    """Samples in arrays, in memory or in a mapped file.

    x: float32, samples along the first axis. y: likewise; the same object as x for an autoencoder. order: positions of
    the samples in the arrays, None for all in their order; with it a part of a mapped file needs no copy.
    """

    x: np.ndarray
    y: np.ndarray
    order: np.ndarray | None = None

    @property
    def can(self) -> Can:  # type: ignore[override]
        """Includes `Can.MAPPED` if the arrays are mapped files."""
        mapped = Can.MAPPED if isinstance(_base(self.x), np.memmap) else Can(0)
        return Can.RANDOM_ACCESS | Can.IN_MEMORY | mapped

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample's input."""
        return self.x.shape[1:]

    def __len__(self) -> int:
        return len(self.x) if self.order is None else len(self.order)

    def rows(self, chosen: np.ndarray | slice) -> Arrays:
        """The samples at the positions or slice ``chosen``; the arrays are shared."""
        order = np.arange(len(self.x)) if self.order is None else self.order
        return Arrays(self.x, self.y, order[chosen])

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of the samples in their order; copied if ``order`` is given."""
        if self.order is None:
            return self.x, self.y
        x = self.x[self.order]
        return x, x if self.y is self.x else self.y[self.order]

    def gatherer(self) -> Callable[[Any], tuple[Any, Any]]:
        """A function from positions, a tensor, to a batch (x, y) of tensors."""
        import tensorflow as tf

        x = tensor(self.x)
        y = x if self.y is self.x else tensor(self.y)
        order = None if self.order is None else tf.convert_to_tensor(self.order)

        def gather(chosen: Any) -> tuple[Any, Any]:
            if order is not None:
                chosen = tf.gather(order, chosen)
            found = tf.gather(x, chosen)
            return found, found if y is x else tf.gather(y, chosen)

        return tf.autograph.experimental.do_not_convert(gather)


@dataclass(frozen=True)
class Joined(SampleSource):
    """Samples that are joined from tables one batch at a time, so that the joined matrix is never in memory.

    values: float32 (samples, k), the samples' own inputs. tables: float32 matrices (rows, features). keys: for each
    table an integer array (samples,), the row of each sample. y: float32 (samples, outputs). A sample's input is its
    rows of all tables, followed by its values.
    """

    values: np.ndarray
    tables: tuple[np.ndarray, ...]
    keys: tuple[np.ndarray, ...]
    y: np.ndarray
    can = Can.RANDOM_ACCESS

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample's input."""
        return (sum(table.shape[1] for table in self.tables) + self.values.shape[1],)

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, chosen: np.ndarray | slice) -> Joined:
        """The samples at the positions or slice ``chosen``; the tables are shared."""
        return Joined(self.values[chosen], self.tables, tuple(key[chosen] for key in self.keys), self.y[chosen])

    def gatherer(self) -> Callable[[Any], tuple[Any, Any]]:
        """A function from positions, a tensor, to a batch (x, y) of tensors."""
        import tensorflow as tf

        values, y = tensor(self.values), tensor(self.y)
        tables = [tensor(table) for table in self.tables]
        keys = [tensor(key) for key in self.keys]

        def gather(chosen: Any) -> tuple[Any, Any]:
            rows = [tf.gather(table, tf.gather(key, chosen)) for table, key in zip(tables, keys, strict=True)]
            return tf.concat([*rows, tf.gather(values, chosen)], axis=1), tf.gather(y, chosen)

        return tf.autograph.experimental.do_not_convert(gather)


def _base(array: np.ndarray) -> Any:
    """The object that owns the memory of a view."""
    while isinstance(array.base, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return array


def tensor(array: np.ndarray) -> Any:
    """A tensor of ``array`` that shares its memory if TensorFlow can use it, such as a mapped file; else a copy."""
    import tensorflow as tf

    if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0 and array.size:
        return tf.experimental.dlpack.from_dlpack(np.asarray(array).__dlpack__())
    return tf.convert_to_tensor(array)


def part(samples: SampleSource, rank: int, size: int) -> SampleSource:
    """One rank's part of ``samples`` under ``sharding: by_rank``: every ``size``-th, the same number on all ranks.

    The remainder, fewer than ``size`` samples at the end, is left out. So all ranks make the same number of steps, and
    none waits for a gradient that is never sent.
    """
    each = samples_per_rank(len(samples), size)
    return samples.rows(slice(rank, each * size, size))


def samples_per_rank(samples: int, size: int) -> int:
    """The number of samples in each rank's part."""
    return samples // size


def batches(
    samples: SampleSource,
    batch_size: int,
    order: EpochOrder | None = None,
    measures: InputMeasures | None = None,
    prefetched: int = 1,
    at_once: int = 0,
) -> Any:
    """A ``tf.data.Dataset`` of batches; the last one may be smaller.

    order: the order of an epoch's samples; None leaves them as they are, and a source that has its own order keeps it.
    measures: of the input, if it is measured. prefetched: batches that are made ahead. at_once: batches that are made
    at once, in their order; 0 for the source's own number.

    Keras builds the same from arrays handed to ``fit``, but with tf.data's autotuning and graph optimisations. The
    autotuning thread ends only after its next sleep, and ``fit`` then returns up to ten seconds after its last epoch,
    at random and on some ranks only. The optimisations copy all samples once more, which takes a second of the first
    step.
    """
    import tensorflow as tf

    if Can.STREAMED in samples.can:
        return samples.batches(batch_size, measures)
    with tf.device("/CPU:0"):
        gather = samples.gatherer() if order is None else samples.gatherer_in(order)
    return position_batches(len(samples), batch_size, order, gather, at_once or samples.threads, measures, prefetched)


def position_batches(
    number: int,
    batch_size: int,
    order: EpochOrder | OrdersByRank | None,
    gather: Callable[[Any], Any],
    threads: int = 0,
    measures: InputMeasures | None = None,
    prefetched: int = 1,
) -> Any:
    """A ``tf.data.Dataset`` of ``gather(positions)`` for each batch of the positions 0 to ``number`` - 1.

    threads: that make batches at once, beside TensorFlow's; 0 for its own. prefetched: batches that are made ahead.
    """
    import tensorflow as tf

    with tf.device("/CPU:0"):
        if order is None:
            positions = tf.data.Dataset.range(number).batch(batch_size)
        else:
            once = tf.data.Dataset.range(1)  # so that each epoch computes its own order
            ordered = tf.autograph.experimental.do_not_convert(
                lambda _: tf.data.Dataset.from_tensor_slices(order.positions(number)).batch(batch_size)
            )
            positions = once.flat_map(ordered).apply(tf.data.experimental.assert_cardinality(-(-number // batch_size)))
        dataset = positions.map(gather, num_parallel_calls=threads or None, deterministic=True if threads else None)
        if measures:
            dataset = measures.summed(dataset)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    if threads:  # a rank's training step keeps TensorFlow's own threads busy
        options.threading.private_threadpool_size = threads
    dataset = dataset.prefetch(prefetched) if prefetched else dataset
    return (measures.timed(dataset) if measures else dataset).with_options(options)
