"""Each of the first p ranks broadcasts its part to all ranks (pittman2018, section IV-E).

In the paper the broadcasts are asynchronous. Here they follow one another: Horovod's one thread per process would carry
them out one after the other in any case. `concurrent_broadcast` has them at the same time.
"""

import numpy as np

from study.ensembles.content import Content
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, ByMessages, SharedBlocks


@WAYS.register("multi_broadcast")
class MultiBroadcast(ByMessages):
    """p broadcasts a round to all ranks, of which rank i is the root of the i-th."""

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
