"""The one order of samples that all members of an ensemble follow, cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from study.data.order import EpochOrder, Positions


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
        """Number of blocks of an epoch."""
        return math.ceil(self.samples / self.block_samples)

    @property
    def blocks(self) -> int:
        """Number of blocks of all epochs that are read."""
        every = self.epochs * self.blocks_per_epoch
        return every if self.most_blocks is None else min(every, self.most_blocks)

    def make_block(self, number: int) -> Block:
        """Make the block with this number."""
        place = number % self.blocks_per_epoch
        return Block(number, place, min(self.block_samples, self.samples - place * self.block_samples))

    def iterate_rounds(self, readers: int) -> Iterator[list[Block]]:
        """Yield the blocks that are shared at once, a list per round: reader r makes the r-th of each.

        A round does not go over the end of an epoch, so the last one of an epoch may be smaller than the readers.
        """
        first = 0
        while first < self.blocks:
            left_in_epoch = self.blocks_per_epoch - first % self.blocks_per_epoch
            number = min(readers, left_in_epoch, self.blocks - first)
            yield [self.make_block(first + offset) for offset in range(number)]
            first += number

    def own_blocks(self, reader: int, readers: int) -> int:
        """Count the blocks that a reader makes."""
        return sum(reader < len(blocks) for blocks in self.iterate_rounds(readers))

    def positions(self, epoch: int) -> Positions:
        """Positions of all samples in the order of ``epoch``, as `study.data.order.EpochOrder` gives them."""
        return EpochOrder(self.seed, epoch).positions(self.samples) if self.is_shuffled else np.arange(self.samples)
