"""What every way of sharing has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from study.backends.base import Backend
from study.communication.collectives import Members, SharingCollectives
from study.core.registry import Registry
from study.data.samples import SampleSource
from study.ensembles.buffer import Buffer, Queue
from study.ensembles.content import Content, Form
from study.ensembles.order import Block, Order

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
    """

    communicator: SharingCollectives
    backend: Backend
    samples: SampleSource
    preprocessing_ranks: int
    order: Order
    form: Form
    capacity: int

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

    def _bytes(self, block: Block) -> int:
        return block.samples * self.place.form.sample_bytes


WAYS: Registry[type[Way]] = Registry("way of sharing")
