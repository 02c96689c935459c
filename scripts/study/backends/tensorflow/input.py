"""Sample sources as a ``tf.data`` pipeline: NumPy gives the positions once per epoch, the graph makes the batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.backends.tensorflow import images
from study.backends.tensorflow.gathering import NO_POSITIONS, make_gatherer
from study.backends.tensorflow.input_measures import InputMeasures
from study.data.order import EpochOrder, OrdersByRank, Positions
from study.data.samples import Can, Changes, SampleSource

EpochDrawing = Callable[[Any], tuple[Any, ...]]  # from an epoch to its positions and, if there are any, random changes


def make_batches(
    samples: SampleSource,
    batch_size: int,
    order: EpochOrder | None = None,
    measures: InputMeasures | None = None,
    prefetched: int = 1,
    at_once: int = 0,
) -> Any:
    """Make a ``tf.data.Dataset`` of batches; the last one may be smaller.

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
        return _make_stream_batches(samples, batch_size, measures)
    with tf.device("/CPU:0"):
        gather = make_gatherer(samples)
        if order is None:
            chosen = tf.data.Dataset.range(len(samples)).batch(batch_size)
        else:
            chosen = make_epoch_batches(samples, len(samples), batch_size, order)
    return make_pipeline(chosen, gather, at_once or samples.threads, measures, prefetched)


def make_epoch_batches(
    samples: SampleSource,
    number: int,
    batch_size: int,
    order: EpochOrder | OrdersByRank,
    in_samples: Callable[[Positions], Positions] = lambda chosen: chosen,
    columns: tuple[int, ...] = (),
) -> Any:
    """Make a ``tf.data.Dataset`` of the positions and random changes of each batch of the current epoch.

    number: of positions in an epoch. in_samples: from the positions of the order to those in ``samples``. columns: the
    shape of the positions after their first axis.
    """
    import tensorflow as tf

    def positions(_: int) -> tuple[Positions, int]:
        return in_samples(order.positions(number)), order.epoch

    once = tf.data.Dataset.range(1)  # so that each epoch computes its own order
    chosen = join_epochs(once, make_epoch_drawing(samples, positions, columns), batch_size)
    return chosen.apply(tf.data.experimental.assert_cardinality(-(-number // batch_size)))


def make_epoch_drawing(
    samples: SampleSource, positions: Callable[[int], tuple[Positions, int]], columns: tuple[int, ...] = ()
) -> EpochDrawing:
    """Make a function from a number to the positions and random changes of an epoch, drawn by NumPy.

    positions: from a number to the positions of an epoch, and the epoch.
    """
    import tensorflow as tf

    def draw(number: NDArray[np.int64]) -> tuple[Positions, Changes]:
        chosen, epoch = positions(int(number))
        return chosen, samples.changes(chosen, epoch)

    return set_drawing_shapes(samples, lambda number: tf.numpy_function(draw, [number], [tf.int64, tf.int64]), columns)


def set_drawing_shapes(
    samples: SampleSource, draw: Callable[[Any], Any], columns: tuple[int, ...] = ()
) -> EpochDrawing:
    """Make a function like ``draw``, from a number to the tensors of an epoch, that sets their shapes."""
    import tensorflow as tf

    width = samples.changes(NO_POSITIONS, 0).shape[-1]

    def draw_epoch(number: Any) -> tuple[Any, ...]:
        chosen, changes = draw(number)
        # Rows without columns are left out: TensorFlow 2.18 crashes when it takes them apart.
        further = (tf.ensure_shape(changes, (None, *columns, width)),) if width else ()
        return tf.ensure_shape(chosen, (None, *columns)), *further

    return draw_epoch


def join_epochs(numbers: Any, draw_epoch: EpochDrawing, batch_size: int | None) -> Any:
    """Make a ``tf.data.Dataset`` of the positions, and random changes if any, of each batch, epoch after epoch.

    numbers: a dataset of the epochs' numbers. batch_size: None for single samples. No
    batch goes over the end of an epoch.
    """
    import tensorflow as tf

    def make_epoch(number: Any) -> Any:
        samples = tf.data.Dataset.from_tensor_slices(draw_epoch(number))
        return samples.batch(batch_size) if batch_size else samples

    return numbers.flat_map(tf.autograph.experimental.do_not_convert(make_epoch))


def make_pipeline(
    chosen: Any,
    gather: Callable[..., Any] | None,
    threads: int = 0,
    measures: InputMeasures | None = None,
    prefetched: int = 1,
) -> Any:
    """Make a ``tf.data.Dataset`` of ``gather(*element)`` for each element of ``chosen``; of the elements for None.

    threads: that make batches at once, beside TensorFlow's; 0 for its own. prefetched: batches that are made ahead.
    """
    import tensorflow as tf

    with tf.device("/CPU:0"):
        if gather:
            chosen = chosen.map(gather, num_parallel_calls=threads or None, deterministic=True if threads else None)
    chosen = chosen.prefetch(prefetched) if prefetched else chosen
    return (measures.measure_waits(chosen) if measures else chosen).with_options(make_options(threads))


def make_options(threads: int = 0) -> Any:
    """Options of a dataset that switch off TensorFlow's own changes; see `make_batches`. threads: its own, or 0."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    if threads:  # a rank's training step keeps TensorFlow's own threads busy
        options.threading.private_threadpool_size = threads
    return options


def _make_stream_batches(samples: SampleSource, batch_size: int, measures: InputMeasures | None) -> Any:
    """Make batches of a source with an order of its own; each iteration gives its next epoch."""
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
    return make_pipeline(mapped, None, 1, measures)


@contextlib.contextmanager
def report_read_errors(*sources: SampleSource) -> Iterator[None]:
    """Raise an error of reading, within the block, with its true cause: TensorFlow's message only has the operation."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, UnicodeDecodeError):  # the second if TensorFlow's message has bytes of a record
        for source in sources:
            if failure := images.find_failure(source):
                raise failure from None
        raise
