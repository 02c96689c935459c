"""The communicator of a rank that trains alone: a member of an ensemble."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from study.communication.collectives import Collectives, RanksOnly
from study.core.errors import StudyError


class SingleRank(RanksOnly):
    """A `study.communication.collectives.Collectives` of a member, which is the only rank of its run.

    Nothing that training does with it reaches another member.
    """

    rank, size = 0, 1

    def __init__(self, all_ranks: Collectives) -> None:
        """all_ranks: their communicator."""
        self.local_rank, self.local_size = all_ranks.local_rank, 1
        self.own_threads, self.libraries = all_ranks.own_threads, all_ranks.libraries

    def gather(self, value: Any) -> list[Any]:
        """[``value``], as there is one rank."""
        return [value]

    def build_allreduce(self, size: int) -> Callable[[], object]:
        """Raise `StudyError`: there is no other rank."""
        raise StudyError("a member of an ensemble has no allreduce")

    def close(self) -> None:
        """Do nothing: the communicator of all ranks is closed by its owner."""
