"""The first p ranks of each node write into a ring in memory, from which all ranks of the node read.

Nothing is sent. A member copies each block once, out of the ring into its own memory, before it is overwritten.
"""

from study.ensembles import ring
from study.ensembles.buffer import Buffer
from study.ensembles.content import Content
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, Place, SharedBlocks, Way
from study.training import staging


@WAYS.register("shared_memory")
class SharedMemory(Way):
    """One ring per node. What is in it stays when its writer has left."""

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
