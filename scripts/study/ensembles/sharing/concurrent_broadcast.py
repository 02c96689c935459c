"""As `multi_broadcast`, with the broadcasts of a round at the same time, by MPI (pittman2018, section IV-E)."""

import numpy as np

from study.communication.collectives import Broadcast
from study.ensembles.sharing.base import WAYS, Place
from study.ensembles.sharing.multi_broadcast import MultiBroadcast


@WAYS.register("concurrent_broadcast")
class ConcurrentBroadcast(MultiBroadcast):
    """p broadcasts a round, all under way at once."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._broadcast_at_once: Broadcast = place.communicator.build_concurrent_broadcast()

    def _broadcast(self, contents: dict[int, np.ndarray]) -> list[np.ndarray]:
        """Broadcast all arrays at once by MPI, after meeting through Horovod: to wait in MPI would keep a core busy."""
        self.place.communicator.gather_bytes(np.zeros(1, np.uint8))
        return self._broadcast_at_once(contents)
