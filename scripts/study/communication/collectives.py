"""Communication between the ranks of a run, whatever carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from study.instruments.counters import Traffic

Members = tuple[int, ...]  # ranks, ascending: a process set
Broadcast = Callable[[dict[int, np.ndarray]], list[np.ndarray]]  # of the arrays {rank: array} to all ranks
BLOCK = 1 << 24  # values of a matrix that are broadcast at once
Gathered = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # of every rank; of every process


def blocks_of(matrix: np.ndarray) -> Iterator[np.ndarray]:
    """The values of a matrix, which is in C order, in views of up to `BLOCK` of them."""
    values = matrix.reshape(-1)
    for first in range(0, values.size, BLOCK):
        yield values[first : first + BLOCK]


class Collectives(Protocol):
    """The ranks of a run, seen from one of them.

    Some collective operations take ``members``, the ranks of a process set that `create_process_sets` has made; None,
    the default, is the global process set of all ranks. All members must call.
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

    def gather(self, value: Any) -> list[Any]:
        """``value`` of every rank, in their order; anything that can be pickled. Waits for all ranks."""

    def allreduce_of(self, size: int) -> Callable[[], object]:
        """A function that sums ``size`` bytes of float32 over all ranks, where gradients are, and waits for the end.

        All ranks must call both.
        """

    def traffic(self) -> Any:
        """A `study.instruments.counters.Traffic`, or one that counts other processes too."""

    def collect(self, mine: dict[str, Any]) -> Gathered:
        """(``mine`` of every rank, the same of every process if there are other processes than ranks)."""

    def close(self) -> None:
        """Shut down together: a rank that leaves early breaks the others' collective operations."""


class SharingCollectives(Collectives, Protocol):
    """What the members of an ensemble also need, to share their samples."""

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


class RanksOnly(ABC):
    """The part of `Collectives` that need not know more than that all processes of the run are ranks."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """``value`` of every rank."""

    def traffic(self) -> Traffic:
        """The counters of this process."""
        return Traffic()

    def collect(self, mine: dict[str, Any]) -> Gathered:
        """(``mine`` of every rank, no other processes)."""
        return self.gather(mine), []
