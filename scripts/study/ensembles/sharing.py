"""The ways in which the ranks of an ensemble share preprocessed blocks.

All give every member the same blocks in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from study.backends.base import Backend
from study.communication.collectives import Broadcast, Members, SharingCollectives
from study.core.registry import Registry
from study.data.samples import SampleSource
from study.ensembles import ring
from study.ensembles.buffer import Buffer, Queue
from study.ensembles.content import Bytes, Content, Form
from study.ensembles.order import Block, Order
from study.training import staging

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


@WAYS.register("duplicated")
class Duplicated(Way):
    """Nothing is shared: every rank is the only reader of its own blocks (pittman2018, section III-A)."""

    readers, reader = 1, 0
    has_others = False

    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Return the rank's own block: nothing is sent."""
        return [(block, own) for block in blocks if own is not None]


@WAYS.register("all_shared")
class AllShared(ByMessages):
    """Every rank preprocesses its part, and one allgather a round gathers all parts (pittman2018, section IV-C)."""

    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Gather all blocks of the round; a rank without one, at the end of an epoch, sends none."""
        form = self.place.form
        sent = form.pack(own) if own else np.empty(0, np.uint8)
        gathered = self.place.communicator.gather_bytes(sent)
        self.received_bytes += len(gathered) - len(sent)
        return list(zip(blocks, form.split_blocks(gathered, [block.samples for block in blocks]), strict=True))


@WAYS.register("single_broadcast")
class SingleBroadcast(ByMessages):
    """An allgather among ranks 0 to p - 1, then a broadcast from rank p - 1 to the rest (pittman2018, IV-D)."""

    @staticmethod
    def list_process_sets(ranks: int, readers: int) -> list[Members]:
        """List two sets: the ranks that preprocess, and the last of them with those that do not."""
        return [tuple(range(readers)), tuple(range(readers - 1, ranks))]

    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Gather the round's blocks among the readers, and broadcast them to the others; returns all blocks."""
        form, communicator = self.place.form, self.place.communicator
        gathering, receiving = self.list_process_sets(communicator.size, self.readers)
        content = np.empty(sum(map(self._count_bytes, blocks)), np.uint8)
        if communicator.rank in gathering:
            sent = form.pack(own) if own else np.empty(0, np.uint8)
            content = _gather_among(communicator, gathering, sent)
            self.received_bytes += len(content) - len(sent)
        else:
            self.received_bytes += len(content)
        if communicator.rank in receiving and len(receiving) > 1:
            (content,) = communicator.broadcast_bytes({receiving[0]: content}, receiving)
        return list(zip(blocks, form.split_blocks(content, [block.samples for block in blocks]), strict=True))


def _gather_among(communicator: SharingCollectives, members: Members, sent: Bytes) -> Bytes:
    """Gather bytes among ``members``, which may be this rank alone."""
    return communicator.gather_bytes(sent, members) if len(members) > 1 else sent


@WAYS.register("multi_broadcast")
class MultiBroadcast(ByMessages):
    """p broadcasts a round to all ranks, of which rank i is the root of the i-th (pittman2018, section IV-E).

    In the paper the broadcasts are asynchronous. Here they follow one another: Horovod's one thread per process would
    carry them out one after the other in any case. `ConcurrentBroadcast` has them at the same time.
    """

    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Broadcast every block of the round from its reader; returns all of them."""
        form, rank = self.place.form, self.place.rank
        contents = {root: np.empty(self._count_bytes(block), np.uint8) for root, block in enumerate(blocks)}
        if own:
            contents[rank] = form.pack(own)
        received = self._broadcast(contents)
        self.received_bytes += sum(len(each) for root, each in enumerate(received) if root != rank)
        return [(block, form.unpack(each, block.samples)) for block, each in zip(blocks, received, strict=True)]

    def _broadcast(self, contents: dict[int, np.ndarray]) -> list[np.ndarray]:
        """Broadcast the arrays {root: array} one after the other; returns them in that order."""
        return self.place.communicator.broadcast_bytes(contents)


@WAYS.register("concurrent_broadcast")
class ConcurrentBroadcast(MultiBroadcast):
    """p broadcasts a round, all under way at once, by MPI (pittman2018, section IV-E)."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._broadcast_at_once: Broadcast = place.communicator.build_concurrent_broadcast()

    def _broadcast(self, contents: dict[int, np.ndarray]) -> list[np.ndarray]:
        """Broadcast all arrays at once by MPI, after meeting through Horovod: to wait in MPI would keep a core busy."""
        self.place.communicator.gather_bytes(np.zeros(1, np.uint8))
        return self._broadcast_at_once(contents)


@WAYS.register("shared_memory")
class SharedMemory(Way):
    """The first p ranks of each node write into a ring in memory, from which all ranks of the node read.

    Nothing is sent. A member copies each block once, out of the ring into its own memory, before it is overwritten.
    What is in the ring stays when its writer has left.
    """

    def __init__(self, place: Place) -> None:
        self._node = next(node for node in staging.group_ranks_by_node(place.communicator) if place.rank in node)
        super().__init__(place)

    @property
    def readers(self) -> int:
        """Number of preprocessing ranks of the node: p, or all if it has fewer."""
        return min(self.place.preprocessing_ranks, len(self._node))

    @property
    def reader(self) -> int | None:
        """Number of this rank on its node, if it is one of the first p."""
        number = self._node.index(self.place.rank)
        return number if number < self.readers else None

    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Return the rank's own block, if it has one: the others' are in the ring."""
        return [] if own is None or self.reader is None else [(blocks[self.reader], own)]

    def _make_buffer(self) -> Buffer:
        """Make the node's ring with the other ranks of the node."""
        place, members = self.place, len(self._node)
        length = ring.compute_size_bytes(place.form, place.capacity, place.order.block_samples, members)
        memory = ring.map_shared_memory(place.communicator, self._node, length)
        sizes = [place.order.make_block(number).samples for number in range(place.order.blocks_per_epoch)]
        own = self._node.index(place.rank)
        return ring.Ring(memory, place.form, place.capacity, sizes, (members, self.readers, own))
