"""Every rank preprocesses its part, and all gather all parts (pittman2018, section IV-C)."""

import numpy as np

from study.ensembles.content import Content
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, ByMessages, SharedBlocks


@WAYS.register("all_shared")
class AllShared(ByMessages):
    """One allgather a round, among all ranks."""

    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Gather all blocks of the round; a rank without one, at the end of an epoch, sends none."""
        form = self.place.form
        sent = form.pack(own) if own else np.empty(0, np.uint8)
        gathered = self.place.communicator.gather_bytes(sent)
        self.received_bytes += len(gathered) - len(sent)
        return list(zip(blocks, form.split_blocks(gathered, [block.samples for block in blocks]), strict=True))
