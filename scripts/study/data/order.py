"""The order of samples, and the seeds of random changes and of dropout: functions of a seed and an epoch alone.

All come from one counter-based generator, Philox (Salmon et al., SC 2011): a number of it follows from a key and a
counter. So every framework sees the same samples in the same order, and a run that goes on in a later epoch needs none
of the earlier ones. NumPy promises the words of Philox for all versions, but not what its `Generator` makes of them, so
that only the words are used.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

LAYERS = 1024  # with dropout; more than models have. Of a lower number, the seeds would be the first of these
MANTISSA = np.uint64(11)  # bits that a word of 64 has more than a float64's fraction
Positions = NDArray[np.int64]


class Purpose(enum.IntEnum):
    """What random numbers are used for; each purpose has its own stream. A value is never reused."""

    ORDER = 0
    BUFFER = 1
    CHANGES = 2
    DROPOUT = 3
    WEIGHTS = 4
    RANKS = 5


def draw_words(seed: int, purpose: Purpose, epoch: int, number: int) -> NDArray[np.uint64]:
    """The first ``number`` random words of 64 bits of a stream. seed, epoch: from 0; 0 without an epoch."""
    return make_generator(seed, purpose, epoch).random_raw(number)


def make_generator(seed: int, purpose: Purpose, epoch: int) -> np.random.Philox:
    """The random generator of one seed, purpose and epoch."""
    return np.random.Philox(key=seed, counter=[0, 0, epoch, purpose])


def to_shares(drawn: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random words as floats from 0 to below 1."""
    return (drawn >> MANTISSA) * 2.0**-53


def derive_rank_seed(seed: int, rank: int) -> int:
    """The seed, below 2^64, of what a rank draws alone, such as dropout; rank 0 keeps the run's.

    The members of an ensemble may have seeds that follow one another. Sums of seed and rank would give a rank of one
    member the masks of another member's rank.

    Args:
        seed: of a run, or of a member of an ensemble.
        rank: within it.
    """
    return int(draw_words(seed, Purpose.RANKS, rank, 1)[0]) if rank else seed


def derive_dropout_seeds(seed: int) -> NDArray[np.int64]:
    """A seed for each of `LAYERS` dropout layers; a mask's seed also has the optimizer's step.

    seed: of `derive_rank_seed`.
    """
    return draw_words(seed, Purpose.DROPOUT, 0, LAYERS).view(np.int64)


def draw_change_words(seed: int, epoch: int, samples: int) -> NDArray[np.uint64]:
    """Two random words for each sample, (samples, 2), that decide its random changes in an epoch."""
    return draw_words(seed, Purpose.CHANGES, epoch, 2 * samples).reshape(samples, 2)


class EpochOrder:
    """The order of the training samples, different in each epoch."""

    def __init__(self, seed: int, epoch: int = 0, buffer: int = 0) -> None:
        """epoch: the first epoch, from 0. buffer: samples among which the next one is drawn; 0 for all of them."""
        self._seed, self._buffer = seed, buffer
        self.epoch = epoch

    def set(self, epoch: int) -> None:
        """Set the next epoch."""
        self.epoch = epoch

    def positions(self, number: int) -> Positions:
        """Positions 0 to ``number`` - 1 in the order of the current epoch."""
        if not self._buffer:
            return np.argsort(draw_words(self._seed, Purpose.ORDER, self.epoch, number), kind="stable")
        return order_by_buffer(to_shares(draw_words(self._seed, Purpose.BUFFER, self.epoch, number)), self._buffer)


class OrdersByRank:
    """The `EpochOrder` of each of several ranks, for one rank that emulates them."""

    def __init__(self, seeds: Iterable[int], epoch: int = 0, buffer: int = 0) -> None:
        """seeds: of the ranks. epoch, buffer: as of `EpochOrder`."""
        self._orders = [EpochOrder(seed, epoch, buffer) for seed in seeds]

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return self._orders[0].epoch

    def set(self, epoch: int) -> None:
        """Set the next epoch."""
        for order in self._orders:
            order.set(epoch)

    def positions(self, number: int) -> Positions:
        """Positions 0 to ``number`` - 1 in each rank's order, (number, ranks)."""
        return np.stack([order.positions(number) for order in self._orders], axis=1)


def order_by_buffer(drawn: NDArray[np.float64], size: int) -> Positions:
    """Positions 0 to len(drawn) - 1 in the order in which they leave a shuffle buffer of ``size``.

    drawn: numbers from 0 to 1, each of which chooses the next position among those in the buffer.
    """
    number = len(drawn)
    buffer, order = list(range(min(size, number))), np.empty(number, np.int64)
    for place, share in enumerate(drawn):
        index, following = int(share * len(buffer)), place + size
        order[place] = buffer[index]
        if following < number:
            buffer[index] = following
        else:
            buffer[index] = buffer[-1]
            buffer.pop()
    return order
