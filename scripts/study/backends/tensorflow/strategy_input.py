"""The training input of TensorFlow's own strategies: batches without an end, in the order of Horovod's ranks.

A strategy counts steps, not epochs: a worker's batches follow one another over all epochs. They are those of the
Horovod rank with the worker's number, epoch by epoch, whichever worker is faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from study.data.randomness import seed_dropout
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition

MOST_EPOCHS = 1 << 40
# A parameter server's workers run one function, and the function knows the worker only by what it can read there.
NUMBER_DESCRIPTOR = 1000
NUMBER_FILE = f"/proc/self/fd/{NUMBER_DESCRIPTOR}"


def leave_number(number: int) -> None:
    """Leave this worker's number where `number_of_worker` reads it: in a file without a name, open in this process."""
    descriptor = os.memfd_create("worker")
    os.write(descriptor, str(number).encode())
    os.dup2(descriptor, NUMBER_DESCRIPTOR)
    os.close(descriptor)


def number_of_worker() -> Any:
    """A tensor, int64: the number of the worker on which TensorFlow computes it."""
    import tensorflow as tf

    return tf.strings.to_number(tf.io.read_file(NUMBER_FILE), tf.int64)


def batches(samples: SampleSource, number: int, run: RunDefinition, worker: Any) -> Any:
    """A ``tf.data.Dataset`` of a worker's batches.

    samples: of all workers. number: how many of them a worker trains on in an epoch. worker: its number, an integer
    or a tensor.
    """
    import tensorflow as tf

    with tf.device("/CPU:0"):
        gather = samples.gatherer_by_epoch()
    return _dataset(gather, samples.threads, number, run, worker)


def creator(samples: SampleSource, number: int, run: RunDefinition) -> Any:
    """The same for Keras and a parameter server: each worker makes its own batches. The samples are sent to it once."""
    import tensorflow as tf
    import tf_keras as keras

    with tf.device("/CPU:0"):
        gather = samples.gatherer_by_epoch()
    return keras.utils.experimental.DatasetCreator(
        lambda _: _dataset(gather, samples.threads, number, run, number_of_worker())
    )


def _dataset(gather: Callable[[Any, Any], Any], threads: int, number: int, run: RunDefinition, worker: Any) -> Any:
    """threads: as for `study.data.samples.position_batches`."""
    import tensorflow as tf

    batch_size, seed = run.derived.batch_size_per_rank, run.derived.seed
    worker = tf.cast(worker, tf.int64)

    def of_epoch(epoch: Any) -> Any:
        chosen = tf.range(number, dtype=tf.int64)
        if run.benchmark["shuffle"]:  # as `study.data.randomness.EpochOrder` does
            chosen = tf.random.experimental.stateless_shuffle(chosen, tf.stack([seed + worker, epoch]))
        if run["sharding"] == "by_rank":  # as in `study.data.samples.part`
            chosen = chosen * run.ranks + worker
        return tf.data.Dataset.from_tensor_slices(chosen).batch(batch_size).map(lambda positions: (positions, epoch))

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    if threads:
        options.threading.private_threadpool_size = threads
    chosen = tf.data.Dataset.range(MOST_EPOCHS).flat_map(of_epoch)
    found = chosen.map(gather, num_parallel_calls=threads or None, deterministic=True if threads else None)
    return found.prefetch(1).with_options(options)


def seed_dropout_by_worker(model: Any, run: RunDefinition) -> None:
    """Give each worker of a parameter server the dropout masks of the rank with its number."""
    import tensorflow as tf

    train = model.train_step
    seeded = tf.autograph.experimental.do_not_convert(
        lambda: seed_dropout(model, run.derived.seed + number_of_worker())
    )

    def train_step(data: Any) -> Any:
        seeded()
        return train(data)

    model.train_step = train_step
