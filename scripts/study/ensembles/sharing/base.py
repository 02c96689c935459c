"""What every way of sharing has in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import numpy as np

from study.backends.base import Backend
from study.communication.collectives import Collectives, Members
from study.core.registry import Registry
from study.data.samples import SampleSource
from study.ensembles.buffer import PATIENCE_S, Buffer, Queue
from study.ensembles.content import Content, Form
from study.ensembles.order import Block, Order

FULL, READY, SHORT = 0, 1, 2  # of a member's buffer
PAUSE_S = 0.002
Shared = list[tuple[Block, Content]]


@dataclass(frozen=True)
class Place:
    """Where a rank stands in its ensemble, and what is shared.

    Args:
        communicator: of the ranks that share, one of each member.
        backend: that preprocesses.
        samples: of an epoch.
        preprocessing_ranks: p, of the run or, where ranks share memory, of each node.
        order: of the samples.
        form: of a sample.
        capacity: blocks that a member can have ready.
        waits: whether members wait for one that lags; else it preprocesses for itself from then on.
    """

    communicator: Collectives
    backend: Backend
    samples: SampleSource
    preprocessing_ranks: int
    order: Order
    form: Form
    capacity: int
    waits: bool = True

    @property
    def rank(self) -> int:
        """Of this process, which is also the number of its member."""
        return self.communicator.rank


class Way(ABC):
    """A way of sharing, seen from one rank; all ranks make theirs together."""

    has_others = True  # whether other members need what this rank does
    knows_threads = True  # whether the threads that preprocess are those of the rank's own blocks

    def __init__(self, place: Place) -> None:
        self.place = place
        self.received_bytes = 0  # payload from other ranks
        self.samples_preprocessed = 0  # by this rank, beside the blocks that it makes as a reader
        self.buffer = self._buffer()

    @staticmethod
    def process_sets(ranks: int, readers: int) -> list[Members]:
        """The process sets that it needs, of one rank or more; see `study.communication.collectives`. None here."""
        return []

    @property
    @abstractmethod
    def readers(self) -> int:
        """The number of ranks among which the blocks of a round are divided."""

    @property
    @abstractmethod
    def reader(self) -> int | None:
        """The number of this rank among them; None if it preprocesses nothing."""

    @abstractmethod
    def share(self, blocks: list[Block], own: Content | None) -> Shared:
        """The blocks of a round that this rank must put into its buffer.

        blocks: of the round. own: the block that this rank has made; None if the round has none of it.
        """

    def agree(self, blocks: int) -> None:  # noqa: B027 - in some ways nobody waits for another member
        """Before a round of so many blocks, wait until the members have room for it, but for no laggard.

        Without `Place.waits` only. All ranks must call. Here nothing.
        """

    def end(self) -> None:  # noqa: B027 - as `agree`
        """After the last round, where each rank leaves by itself: wait until all have got it. All ranks must call.

        Here nothing.
        """

    def _buffer(self) -> Buffer:
        return Queue(self.place.capacity)


class ByMessages(Way):
    """A way in which the first p ranks preprocess and blocks are sent as bytes."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        place.form.check(place.order.block_samples * self.readers)

    @property
    def readers(self) -> int:
        """The first p ranks."""
        return self.place.preprocessing_ranks

    @property
    def reader(self) -> int | None:
        """The rank's number, if it is one of them."""
        return self.place.rank if self.place.rank < self.readers else None

    def agree(self, blocks: int) -> None:
        """The ranks tell one another whether they have room, until all have or one has waited too long."""
        queue = cast(Queue, self.buffer)
        waited_from = None
        while True:
            state = FULL if not queue.has_room(blocks) else SHORT if queue.is_short else READY
            states = self.place.communicator.gather_bytes(np.array([state], np.uint8))
            if FULL not in states:
                return
            now = time.monotonic()
            waited_from = (waited_from or now) if SHORT in states else None
            is_long = waited_from is not None and now - waited_from > PATIENCE_S
            # Clocks differ: what one rank decides, all do.
            if self.place.communicator.gather_bytes(np.array([is_long], np.uint8)).any():
                if state == FULL:
                    queue.leave()
                return
            time.sleep(PAUSE_S)

    def end(self) -> None:
        """The first rank that leaves shuts Horovod down for all, also for one that still has to broadcast."""
        self.place.communicator.gather_bytes(np.zeros(1, np.uint8))

    def _bytes(self, block: Block) -> int:
        return block.samples * self.place.form.sample_bytes


WAYS: Registry[type[Way]] = Registry("way of sharing")
