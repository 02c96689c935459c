"""Some ranks of a run as a communicator of their own: those of a member of an ensemble, or those that share samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from study.communication.collectives import Broadcast, Collectives, Members, RanksOnly
from study.core.errors import StudyError


def subset(every: Collectives, ranks: Members) -> Collectives:
    """The communicator of ``ranks``, this one among them; they are a process set if they are several, and not all."""
    if len(ranks) == every.size:
        return every
    return Subset(every, ranks) if len(ranks) > 1 else Alone(every)


class Subset(RanksOnly):
    """A `study.communication.collectives.Collectives` of a process set, in which ranks are numbered from 0."""

    def __init__(self, every: Collectives, ranks: Members) -> None:
        """every: the communicator of all ranks. ranks: of the process set, as ``every`` numbers them."""
        self.every, self.ranks = every, ranks
        self.rank, self.size = ranks.index(every.rank), len(ranks)
        self.local_rank, self.local_size = every.local_rank, every.local_size
        self.own_threads, self.libraries = every.own_threads, every.libraries

    def create_process_sets(self, sets: list[Members]) -> None:
        """Refused: all ranks of the run must call."""
        raise StudyError("ranks of a process set cannot make process sets")

    def broadcast_matrix(self, matrix: np.ndarray, members: Members | None = None) -> None:
        """Fill ``matrix`` on each of these ranks with that of the first one."""
        self.every.broadcast_matrix(matrix, self._of(members))

    def gather(self, value: Any, members: Members | None = None) -> list[Any]:
        """``value`` of each of these ranks, in their order."""
        return self.every.gather(value, self._of(members))

    def gather_bytes(self, sent: np.ndarray, members: Members | None = None) -> np.ndarray:
        """The uint8 arrays of these ranks, one after the other."""
        return self.every.gather_bytes(sent, self._of(members))

    def broadcast_bytes(self, contents: dict[int, np.ndarray], members: Members | None = None) -> list[np.ndarray]:
        """The uint8 arrays of several of these ranks, on all of them."""
        return self.every.broadcast_bytes(
            {self.ranks[root]: content for root, content in contents.items()}, self._of(members)
        )

    def concurrent_broadcasts(self) -> Broadcast:
        """Refused: they are among all ranks of the run."""
        raise StudyError("input_sharing: concurrent_broadcast is among all ranks; use multi_broadcast")

    def allreduce_of(self, size: int) -> Callable[[], object]:
        """Refused: it is among all ranks of the run."""
        raise StudyError("a member of an ensemble has no allreduce to measure")

    def close(self) -> None:
        """Nothing: the communicator of all ranks is closed."""

    def _of(self, members: Members | None) -> Members:
        """As the communicator of all ranks numbers them."""
        return self.ranks if members is None else tuple(self.ranks[rank] for rank in members)


class Alone(RanksOnly):
    """A `study.communication.collectives.Collectives` of a member, which is the only rank of its run.

    Nothing that training does with it reaches another member.
    """

    rank, size = 0, 1

    def __init__(self, every: Collectives) -> None:
        """every: the communicator of all ranks."""
        self.local_rank, self.local_size = every.local_rank, 1
        self.own_threads, self.libraries = every.own_threads, every.libraries

    def create_process_sets(self, sets: list[Members]) -> None:
        """Nothing: there is one rank."""

    def broadcast_matrix(self, matrix: np.ndarray, members: Members | None = None) -> None:
        """Nothing: it is there."""

    def gather(self, value: Any, members: Members | None = None) -> list[Any]:
        """The member's own ``value``."""
        return [value]

    def gather_bytes(self, sent: np.ndarray, members: Members | None = None) -> np.ndarray:
        """The member's own."""
        return sent

    def broadcast_bytes(self, contents: dict[int, np.ndarray], members: Members | None = None) -> list[np.ndarray]:
        """The member's own."""
        return list(contents.values())

    def concurrent_broadcasts(self) -> Broadcast:
        """The member's own."""
        return self.broadcast_bytes

    def allreduce_of(self, size: int) -> Callable[[], object]:
        """Refused: there is no other rank."""
        raise StudyError("a member of an ensemble has no allreduce")

    def close(self) -> None:
        """Nothing: the communicator of all ranks is closed."""
