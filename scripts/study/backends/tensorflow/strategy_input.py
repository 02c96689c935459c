"""The training input of a parameter server's workers: batches without an end, in the order of Horovod's ranks.

The strategy counts steps, not epochs: a worker's batches follow one another over all epochs. They are those of the
Horovod rank with the worker's number, epoch by epoch, whichever worker is faster.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from study.backends.tensorflow import input
from study.backends.tensorflow.gathering import Gather, make_gatherer
from study.backends.tensorflow.seeds import draw_seeds_by_rank, set_dropout_seeds
from study.data.order import EpochOrder, Positions
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition

MOST_EPOCHS = 1 << 40
# A parameter server's workers run one function, and the function knows the worker only by what it can read there.
NUMBER_DESCRIPTOR = 1000
NUMBER_FILE = f"/proc/self/fd/{NUMBER_DESCRIPTOR}"


def store_worker_number(number: int) -> None:
    """Store this worker's number for `read_worker_number`, in a file without a name, open in this process."""
    descriptor = os.memfd_create("worker")
    os.write(descriptor, str(number).encode())
    os.dup2(descriptor, NUMBER_DESCRIPTOR)
    os.close(descriptor)


def read_worker_number() -> Any:
    """An int64 tensor of the number of the worker on which TensorFlow computes it."""
    import tensorflow as tf

    return tf.strings.to_number(tf.io.read_file(NUMBER_FILE), tf.int64)


def make_creator(samples: SampleSource, number: int, run: RunDefinition, drawing: str) -> Any:
    """Make a Keras ``DatasetCreator``, by which each worker makes its own batches. The samples are sent to it once.

    samples: of all workers. number: how many of them a worker trains on in an epoch. drawing: the name by which
    TensorFlow knows a worker's own function from (number, epoch) to `draw_positions` and random changes, equal on all
    workers.
    """
    import tensorflow as tf
    import tf_keras as keras

    with tf.device("/CPU:0"):
        gather = make_gatherer(samples)

    def draw(epoch: Any) -> Any:
        arguments = [tf.constant(number, tf.int64), epoch]
        return tf.raw_ops.PyFunc(input=arguments, token=drawing, Tout=[tf.int64, tf.int64])

    draw_epoch = input.set_drawing_shapes(samples, draw)
    return keras.utils.experimental.DatasetCreator(lambda _: _make_dataset(gather, draw_epoch, samples.threads, run))


def draw_positions(run: RunDefinition, worker: int, number: int, epoch: int) -> Positions:
    """Draw the positions, in all samples, on which a worker trains in an epoch, as the Horovod rank of its number."""
    order = EpochOrder(run.derived.seed + worker, epoch)
    chosen = order.positions(number) if run.benchmark["shuffle"] else np.arange(number)
    return (
        chosen * run.ranks + worker if run["sharding"] == "by_rank" else chosen
    )  # as `study.data.samples.select_part`


def _make_dataset(gather: Gather, draw_epoch: input.EpochDrawing, threads: int, run: RunDefinition) -> Any:
    """Make the endless dataset of a worker's batches. threads: as of `input.make_pipeline`."""
    import tensorflow as tf

    chosen = input.join_epochs(tf.data.Dataset.range(MOST_EPOCHS), draw_epoch, run.derived.batch_size_per_rank)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return input.make_pipeline(chosen, gather, threads).with_options(options)


def seed_dropout_by_worker(model: Any, run: RunDefinition) -> None:
    """Give each worker of a parameter server the dropout masks of the rank with its number."""
    import tensorflow as tf

    train, seeds = model.train_step, draw_seeds_by_rank(run.derived.seed, run.ranks)
    set_seeds = tf.autograph.experimental.do_not_convert(
        lambda: set_dropout_seeds(model, tf.gather(seeds, read_worker_number()))
    )

    def train_step(data: Any) -> Any:
        set_seeds()
        return train(data)

    model.train_step = train_step
