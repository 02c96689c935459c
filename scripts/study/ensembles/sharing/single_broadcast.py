"""The first p ranks gather among themselves, and the last of them broadcasts to the rest (pittman2018, IV-D)."""

import numpy as np

from study.communication.collectives import Members, SharingCollectives
from study.ensembles.content import Bytes, Content
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, ByMessages, Shared


@WAYS.register("single_broadcast")
class SingleBroadcast(ByMessages):
    """An allgather among ranks 0 to p - 1, then a broadcast from rank p - 1 to ranks p to n - 1."""

    @staticmethod
    def process_sets(ranks: int, readers: int) -> list[Members]:
        """The ranks that preprocess; the last of them and those that do not."""
        return [tuple(range(readers)), tuple(range(readers - 1, ranks))]

    def share(self, blocks: list[Block], own: Content | None) -> Shared:
        """All blocks of the round."""
        form, communicator = self.place.form, self.place.communicator
        gathering, receiving = self.process_sets(communicator.size, self.readers)
        content = np.empty(sum(map(self._bytes, blocks)), np.uint8)
        if communicator.rank in gathering:
            sent = form.packed(own) if own else np.empty(0, np.uint8)
            content = _among(communicator, gathering, sent)
            self.received_bytes += len(content) - len(sent)
        else:
            self.received_bytes += len(content)
        if communicator.rank in receiving and len(receiving) > 1:
            (content,) = communicator.broadcast_bytes({receiving[0]: content}, receiving)
        return list(zip(blocks, form.split(content, [block.samples for block in blocks]), strict=True))


def _among(communicator: SharingCollectives, members: Members, sent: Bytes) -> Bytes:
    return communicator.gather_bytes(sent, members) if len(members) > 1 else sent
