"""The one order of samples that all members of an ensemble follow, cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from study.data.samples import SampleSource


@dataclass(frozen=True)
class Block:
    """A block of samples: its number over all epochs read, from 0, its place in its epoch, and how many samples."""

    number: int
    place: int
    samples: int


@dataclass(frozen=True)
class Order:
    """The order of the samples, by seed and epoch alone: it is the same for every member and every way of sharing.

    Args:
        seed: of the run; with it the order is that of an ordinary run's rank 0.
        samples: of an epoch.
        block_samples: of a block; the last one of an epoch may be smaller.
        epochs: how often all samples are read.
        is_shuffled: whether each epoch has an order of its own.
        most_blocks: blocks after which it ends, of all epochs together; None for no such end.
        first_epoch: number of the first epoch that is read, from 0; earlier ones were trained before a restart.
    """

    seed: int
    samples: int
    block_samples: int
    epochs: int
    is_shuffled: bool
    most_blocks: int | None = None
    first_epoch: int = 0

    @property
    def blocks_per_epoch(self) -> int:
        """The number of blocks of an epoch."""
        return math.ceil(self.samples / self.block_samples)

    @property
    def blocks(self) -> int:
        """The number of blocks of all epochs."""
        every = self.epochs * self.blocks_per_epoch
        return every if self.most_blocks is None else min(every, self.most_blocks)

    def block(self, number: int) -> Block:
        """The block with this number."""
        place = number % self.blocks_per_epoch
        return Block(number, place, min(self.block_samples, self.samples - place * self.block_samples))

    def rounds(self, readers: int) -> Iterator[list[Block]]:
        """The blocks that are shared at once, one list after the other: reader r makes the r-th of each.

        A round does not go over the end of an epoch, so the last one of an epoch may be smaller than the readers.
        """
        first = 0
        while first < self.blocks:
            left = self.blocks_per_epoch - first % self.blocks_per_epoch
            number = min(readers, left, self.blocks - first)
            yield [self.block(first + offset) for offset in range(number)]
            first += number

    def own_blocks(self, reader: int, readers: int) -> int:
        """The number of blocks that a reader makes."""
        return sum(reader < len(blocks) for blocks in self.rounds(readers))

    def positions(self, epoch: Any) -> Any:
        """The positions of all samples in the order of ``epoch``, tensors; as `study.data.randomness.EpochOrder`."""
        import tensorflow as tf

        chosen = tf.range(self.samples, dtype=tf.int64)
        if not self.is_shuffled:
            return chosen
        return tf.random.experimental.stateless_shuffle(chosen, tf.stack([tf.cast(self.seed, tf.int64), epoch]))

    def dataset(self, samples: SampleSource, reader: int, readers: int, first: int = 0) -> Any:
        """A ``tf.data.Dataset`` of the preprocessed blocks of one reader, in their order, without its ``first`` ones.

        It works on threads of its own, so that a training step does not keep it waiting, and one block ahead.
        """
        import tensorflow as tf

        with tf.device("/CPU:0"):
            gather = samples.gatherer_by_epoch()

            def of_epoch(epoch: Any) -> Any:
                blocks = tf.data.Dataset.from_tensor_slices(self.positions(epoch)).batch(self.block_samples)
                return blocks.shard(readers, reader).map(lambda positions: (positions, epoch))

            epochs = tf.data.Dataset.range(self.first_epoch, self.first_epoch + self.epochs)
            positions = epochs.flat_map(of_epoch).take(self.own_blocks(reader, readers))
            threads = max(1, samples.threads)
            dataset = positions.skip(first).map(gather, num_parallel_calls=threads, deterministic=True)
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        options.threading.private_threadpool_size = threads
        return dataset.prefetch(1).with_options(options)
