"""The first p ranks gather among themselves, and the last of them broadcasts to the rest (pittman2018, IV-D)."""

import numpy as np

from study.communication.collectives import Members, SharingCollectives
from study.ensembles.content import Bytes, Content
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, ByMessages, SharedBlocks


@WAYS.register("single_broadcast")
class SingleBroadcast(ByMessages):
    """An allgather among ranks 0 to p - 1, then a broadcast from rank p - 1 to ranks p to n - 1."""

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
