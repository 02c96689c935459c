"""The base classes of the ways of sharing, and their registry."""

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

SharedBlocks = list[tuple[Block, Content]]


@dataclass(frozen=True)
class Place:
    """A rank's place in its ensemble, and what is shared.

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
        """Rank of this process, which is also the number of its member."""
        return self.communicator.rank


class Way(ABC):
    """A way of sharing, seen from one rank; all ranks make theirs together."""

    has_others = True  # whether other members need what this rank does

    def __init__(self, place: Place) -> None:
        self.place = place
        self.received_bytes = 0  # payload from other ranks
        self.buffer = self._make_buffer()

    @staticmethod
    def list_process_sets(ranks: int, readers: int) -> list[Members]:
        """List the process sets that the way needs, see `study.communication.collectives`; by default none."""
        return []

    @property
    @abstractmethod
    def readers(self) -> int:
        """Number of ranks among which the blocks of a round are divided."""

    @property
    @abstractmethod
    def reader(self) -> int | None:
        """Number of this rank among the readers; None if it preprocesses nothing."""

    @abstractmethod
    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Share the blocks of a round; returns those that this rank must put into its buffer.

        blocks: of the round. own: the block that this rank has made; None if the round has none of it.
        """

    def _make_buffer(self) -> Buffer:
        """Make the buffer of the member's blocks."""
        return Queue(self.place.capacity)


class ByMessages(Way):
    """A way in which the first p ranks preprocess and blocks are sent as bytes."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        place.form.require_sendable(place.order.block_samples * self.readers)

    @property
    def readers(self) -> int:
        """Number of preprocessing ranks, p: the first p ranks read."""
        return self.place.preprocessing_ranks

    @property
    def reader(self) -> int | None:
        """Number of this rank, if it is one of the first p."""
        return self.place.rank if self.place.rank < self.readers else None

    def _count_bytes(self, block: Block) -> int:
        """Count the bytes of a block."""
        return block.samples * self.place.form.sample_bytes


WAYS: Registry[type[Way]] = Registry("way of sharing")
