"""Communication between the ranks of a run, whatever carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Members = tuple[int, ...]  # ranks, ascending: a process set
Broadcast = Callable[[dict[int, np.ndarray]], list[np.ndarray]]  # of the arrays {rank: array} to all ranks


class Collectives(Protocol):
    """The ranks of a run, seen from one of them.

    Collective operations take ``members``, the ranks of a process set that `create_process_sets` has made; None, the
    default, is the global process set of all ranks. All members must call.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    own_threads: frozenset[int]  # thread ids of the communication library, whose threads are never idle
    libraries: dict[str, str]  # that carry the communication, by name, with their versions

    def create_process_sets(self, sets: list[Members]) -> None:
        """Make process sets; all ranks must call, with the same ``sets``."""

    def broadcast_matrix(self, matrix: np.ndarray, members: Members | None = None) -> None:
        """Fill ``matrix``, float32 in C order, on every member with that of the first member."""

    def gather(self, value: Any, members: Members | None = None) -> list[Any]:
        """``value`` of every member, in their order; anything that can be pickled. Waits for all members."""

    def gather_bytes(self, sent: np.ndarray, members: Members | None = None) -> np.ndarray:
        """The uint8 arrays of all members, one after the other; their lengths may differ."""

    def broadcast_bytes(self, contents: dict[int, np.ndarray], members: Members | None = None) -> list[np.ndarray]:
        """The uint8 arrays of several members, {rank: array}, on all of them, in that order.

        The others give arrays of the same lengths, whose values do not matter.
        """

    def concurrent_broadcasts(self) -> Broadcast:
        """A function as `broadcast_bytes` to all ranks, with all arrays on their way at once; all ranks must call.

        Raises:
            StudyError: the ranks have nothing that does so.
        """

    def time_allreduce(self, size: int, repeats: int) -> list[float]:
        """Seconds of each of ``repeats`` allreduces (sums) of ``size`` bytes of float32; all ranks must call."""

    def traffic(self) -> Any:
        """A `study.instruments.traffic.Traffic`, or one that counts other processes too."""

    def collect(self, mine: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(``mine`` of every rank, the same of every process if there are other processes than ranks)."""

    def close(self) -> None:
        """Shut down together: a rank that leaves early breaks the others' collective operations."""
