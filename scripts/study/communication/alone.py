"""The communicator of a rank that trains alone: a member of an ensemble."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from study.communication.collectives import Collectives, Members, RanksOnly
from study.core.errors import StudyError


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

    def gather(self, value: Any) -> list[Any]:
        """The member's own ``value``."""
        return [value]

    def allreduce_of(self, size: int) -> Callable[[], object]:
        """Refused: there is no other rank."""
        raise StudyError("a member of an ensemble has no allreduce")

    def close(self) -> None:
        """Nothing: the communicator of all ranks is closed."""
