"""Sample sources as a ``tf.data`` pipeline: NumPy gives the positions once per epoch, the graph makes the batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.tensorflow import images
from study.backends.tensorflow.gathering import NONE, gatherer
from study.backends.tensorflow.input_measures import InputMeasures
from study.data.order import EpochOrder, OrdersByRank, Positions
from study.data.samples import Can, Changes, SampleSource

Drawn = Callable[[Any], tuple[Any, ...]]  # from an epoch to its positions and, if there are any, random changes


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
        return _streamed(samples, batch_size, measures)
    with tf.device("/CPU:0"):
        gather = gatherer(samples)
        if order is None:
            chosen = tf.data.Dataset.range(len(samples)).batch(batch_size)
        else:
            chosen = epoch_in_order(samples, len(samples), batch_size, order)
    return pipeline(chosen, gather, at_once or samples.threads, measures, prefetched)


def epoch_in_order(
    samples: SampleSource,
    number: int,
    batch_size: int,
    order: EpochOrder | OrdersByRank,
    in_samples: Callable[[Positions], Positions] = lambda chosen: chosen,
    columns: tuple[int, ...] = (),
) -> Any:
    """A ``tf.data.Dataset`` of the current epoch; see `epochs`.

    number: of positions in an epoch. in_samples: from the positions of the order to those in ``samples``. columns: the
    shape of the positions after their first axis.
    """
    import tensorflow as tf

    def positions(_: int) -> tuple[Positions, int]:
        return in_samples(order.positions(number)), order.epoch

    once = tf.data.Dataset.range(1)  # so that each epoch computes its own order
    chosen = epochs(once, drawn(samples, positions, columns), batch_size)
    return chosen.apply(tf.data.experimental.assert_cardinality(-(-number // batch_size)))


def drawn(
    samples: SampleSource, positions: Callable[[int], tuple[Positions, int]], columns: tuple[int, ...] = ()
) -> Drawn:
    """Positions and random changes by NumPy. positions: from a number to the positions of an epoch, and the epoch."""
    import tensorflow as tf

    def draw(number: NDArray[np.int64]) -> tuple[Positions, Changes]:
        chosen, epoch = positions(int(number))
        return chosen, samples.changes(chosen, epoch)

    return shaped(samples, lambda number: tf.numpy_function(draw, [number], [tf.int64, tf.int64]), columns)


def shaped(samples: SampleSource, found: Callable[[Any], Any], columns: tuple[int, ...] = ()) -> Drawn:
    """``found``, from a number to the positions and random changes of an epoch, with the shapes of its tensors."""
    import tensorflow as tf

    width = samples.changes(NONE, 0).shape[-1]

    def of_epoch(number: Any) -> tuple[Any, ...]:
        chosen, changes = found(number)
        # Rows without columns are left out: TensorFlow 2.18 crashes when it takes them apart.
        further = (tf.ensure_shape(changes, (None, *columns, width)),) if width else ()
        return tf.ensure_shape(chosen, (None, *columns)), *further

    return of_epoch


def epochs(numbers: Any, drawn: Drawn, batch_size: int | None) -> Any:
    """A ``tf.data.Dataset`` of the positions, and random changes if there are any, of each batch.

    numbers: a dataset of the epochs' numbers; one epoch follows the other. batch_size: None for single samples. No
    batch goes over the end of an epoch.
    """
    import tensorflow as tf

    def of_epoch(number: Any) -> Any:
        each = tf.data.Dataset.from_tensor_slices(drawn(number))
        return each.batch(batch_size) if batch_size else each

    return numbers.flat_map(tf.autograph.experimental.do_not_convert(of_epoch))


def pipeline(
    chosen: Any,
    gather: Callable[..., Any] | None,
    threads: int = 0,
    measures: InputMeasures | None = None,
    prefetched: int = 1,
) -> Any:
    """A ``tf.data.Dataset`` of ``gather(*element)`` for each element of ``chosen``; None for the elements themselves.

    threads: that make batches at once, beside TensorFlow's; 0 for its own. prefetched: batches that are made ahead.
    """
    import tensorflow as tf

    with tf.device("/CPU:0"):
        if gather:
            chosen = chosen.map(gather, num_parallel_calls=threads or None, deterministic=True if threads else None)
    chosen = chosen.prefetch(prefetched) if prefetched else chosen
    return (measures.timed(chosen) if measures else chosen).with_options(options(threads))


def options(threads: int = 0) -> Any:
    """Without what TensorFlow changes by itself; see `batches`. threads: of the dataset's own, 0 for none."""
    import tensorflow as tf

    found = tf.data.Options()
    found.autotune.enabled = False
    found.experimental_optimization.apply_default_optimizations = False
    if threads:  # a rank's training step keeps TensorFlow's own threads busy
        found.threading.private_threadpool_size = threads
    return found


def _streamed(samples: SampleSource, batch_size: int, measures: InputMeasures | None) -> Any:
    """Batches of a source that gives its samples in its own order: in each iteration the next epoch follows."""
    import tensorflow as tf

    sizes = [min(batch_size, len(samples) - first) for first in range(0, len(samples), batch_size)]
    kinds = [(tf.as_dtype(kind), (None, *shape)) for kind, shape in samples.taken]

    def take(number: NDArray[np.int64]) -> list[NDArray[Any]]:
        return list(samples.take(sizes[int(number)]))

    def batch(number: Any) -> tuple[Any, ...]:
        arrays = tf.nest.flatten(tf.numpy_function(take, [number], [kind for kind, _ in kinds]))
        return tuple(tf.ensure_shape(array, shape) for array, (_, shape) in zip(arrays, kinds, strict=True))

    numbers = tf.data.Dataset.range(len(sizes))
    # It waits for samples, while a training step needs TensorFlow's threads: so it has one of its own.
    mapped = numbers.map(tf.autograph.experimental.do_not_convert(batch))
    return pipeline(mapped, None, 1, measures)


@contextlib.contextmanager
def reading_errors(*sources: SampleSource) -> Iterator[None]:
    """Within the block an error of reading is raised as what it is: TensorFlow's own message has only the operation."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, UnicodeDecodeError):  # the second if TensorFlow's message has bytes of a record
        for source in sources:
            if found := images.failure(source):
                raise found from None
        raise
