"""The training input of a parameter server's workers: batches without an end, in the order of Horovod's ranks.

The strategy counts steps, not epochs: a worker's batches follow one another over all epochs. They are those of the
Horovod rank with the worker's number, epoch by epoch, whichever worker is faster.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from study.backends.tensorflow import input
from study.backends.tensorflow.dropout import seeds_by_rank, use_seeds
from study.backends.tensorflow.gathering import Gather, gatherer
from study.data.order import EpochOrder, Positions
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


def creator(samples: SampleSource, number: int, run: RunDefinition, drawing: str) -> Any:
    """A Keras ``DatasetCreator``, by which each worker makes its own batches. The samples are sent to it once.

    samples: of all workers. number: how many of them a worker trains on in an epoch. drawing: the name by which
    TensorFlow knows a worker's own function from (number, epoch) to `positions` and random changes, the same on all
    workers.
    """
    import tensorflow as tf
    import tf_keras as keras

    with tf.device("/CPU:0"):
        gather = gatherer(samples)

    def draw(epoch: Any) -> Any:
        given = [tf.constant(number, tf.int64), epoch]
        return tf.raw_ops.PyFunc(input=given, token=drawing, Tout=[tf.int64, tf.int64])

    drawn = input.shaped(samples, draw)
    return keras.utils.experimental.DatasetCreator(lambda _: _dataset(gather, drawn, samples.threads, run))


def positions(run: RunDefinition, worker: int, number: int, epoch: int) -> Positions:
    """The positions, in all samples, on which a worker trains in an epoch: those of the Horovod rank of its number."""
    order = EpochOrder(run.derived.seed + worker, epoch)
    chosen = order.positions(number) if run.benchmark["shuffle"] else np.arange(number)
    return chosen * run.ranks + worker if run["sharding"] == "by_rank" else chosen  # as `study.data.samples.part`


def _dataset(gather: Gather, drawn: input.Drawn, threads: int, run: RunDefinition) -> Any:
    """threads: as for `study.backends.tensorflow.input.pipeline`."""
    import tensorflow as tf

    chosen = input.epochs(tf.data.Dataset.range(MOST_EPOCHS), drawn, run.derived.batch_size_per_rank)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return input.pipeline(chosen, gather, threads).with_options(options)


def seed_dropout_by_worker(model: Any, run: RunDefinition) -> None:
    """Give each worker of a parameter server the dropout masks of the rank with its number."""
    import tensorflow as tf

    train, seeds = model.train_step, seeds_by_rank(run.derived.seed, run.ranks)
    seeded = tf.autograph.experimental.do_not_convert(lambda: use_seeds(model, tf.gather(seeds, number_of_worker())))

    def train_step(data: Any) -> Any:
        seeded()
        return train(data)

    model.train_step = train_step
