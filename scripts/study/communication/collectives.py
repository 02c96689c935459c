"""Communication between the ranks of a run, whatever carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from study.instruments.counters import Traffic

Members = tuple[int, ...]  # ranks, ascending: a process set
Broadcast = Callable[[dict[int, np.ndarray]], list[np.ndarray]]  # of the arrays {rank: array} to all ranks
Gathered = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # of every rank; of every process


class Collectives(Protocol):
    """The ranks of a run, seen from one of them.

    Some collective operations take ``members``, the ranks of a process set; None, the default, is the global process
    set of all ranks. All members must call.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    own_threads: frozenset[int]  # thread ids of the communication library, whose threads are never idle
    libraries: dict[str, str]  # that carry the communication, by name, with their versions

    def gather(self, value: Any) -> list[Any]:
        """Gather ``value`` of every rank, in their order; anything that can be pickled. Waits for all ranks."""

    def build_allreduce(self, size: int) -> Callable[[], object]:
        """A function that sums ``size`` bytes of float32 over all ranks, and waits for the end.

        The bytes are where gradients are, such as on the GPU. All ranks must call both functions.
        """

    def traffic(self) -> Any:
        """New counters of the bytes sent and received, of this process or also of others."""

    def collect(self, mine: dict[str, Any]) -> Gathered:
        """Gather ``mine`` of every rank, and of every process if there are others than ranks: (ranks', processes')."""

    def close(self) -> None:
        """Shut down, all ranks together: one that leaves early breaks the others' collective operations."""


class SharingCollectives(Collectives, Protocol):
    """Collectives by which the members of an ensemble share their samples."""

    def gather_bytes(self, sent: np.ndarray, members: Members | None = None) -> np.ndarray:
        """Gather the uint8 arrays of all members into one, one after the other; their lengths may differ."""

    def broadcast_bytes(self, contents: dict[int, np.ndarray], members: Members | None = None) -> list[np.ndarray]:
        """Broadcast the uint8 arrays of several members, {rank: array}, and return all of them, in that order.

        The others give arrays of the same lengths, whose values do not matter.
        """

    def build_concurrent_broadcast(self) -> Broadcast:
        """A function that broadcasts as `broadcast_bytes` to all ranks, all arrays at once; all ranks must call.

        Raises:
            StudyError: the ranks have nothing that does so.
        """


class RanksOnly(ABC):
    """Methods of `Collectives` for runs whose processes are all ranks."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """Gather ``value`` of every rank."""

    def traffic(self) -> Traffic:
        """New counters of this process's bytes."""
        return Traffic()

    def collect(self, mine: dict[str, Any]) -> Gathered:
        """Gather ``mine`` of every rank; there are no other processes: (ranks', [])."""
        return self.gather(mine), []
