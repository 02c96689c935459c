"""Some ranks of a run as a communicator of their own: those of a member of an ensemble, or those that share samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from study.communication.collectives import Broadcast, Communicator, Members
from study.core.errors import StudyError
from study.instruments.traffic import Traffic


def subset(every: Communicator, ranks: Members) -> Communicator:
    """The communicator of ``ranks``, this one among them; they are a process set if they are several, and not all."""
    if len(ranks) == every.size:
        return every
    return Subset(every, ranks) if len(ranks) > 1 else Alone(every)


class Subset:
    """A `study.communication.collectives.Communicator` of a process set, in which ranks are numbered from 0."""

    strategy, sends_sparse = None, False

    def __init__(self, every: Communicator, ranks: Members) -> None:
        """every: the communicator of all ranks. ranks: of the process set, as ``every`` numbers them."""
        self._every, self._ranks = every, ranks
        self.rank, self.size = ranks.index(every.rank), len(ranks)
        self.local_rank, self.local_size = every.local_rank, every.local_size
        self.own_threads, self.libraries = every.own_threads, every.libraries

    def create_process_sets(self, sets: list[Members]) -> None:
        """Refused: all ranks of the run must call."""
        raise StudyError("ranks of a process set cannot make process sets")

    def distributed_optimizer(
        self, optimizer: Any, members: Members | None = None, compression: str = "none", backward_passes: int = 1
    ) -> Any:
        """``optimizer``, with each gradient averaged over these ranks before it is applied."""
        options: dict[str, Any] = {"compression": compression, "backward_passes": backward_passes}
        return self._every.distributed_optimizer(optimizer, self._of(members), **options)

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """Whether the gradients of ``variables`` were averaged over these ranks."""
        return self._every.has_averaged(optimizer, variables)

    def observe_gradients(self, optimizer: Any, observe: Callable[[list[Any], list[Any]], None]) -> None:
        """Have each step of ``optimizer`` also do ``observe(gradients, averages)``."""
        self._every.observe_gradients(optimizer, observe)

    def broadcast_variables(self, variables: list[Any], members: Members | None = None) -> None:
        """Set ``variables`` on each of these ranks to the values of the first one."""
        self._every.broadcast_variables(variables, self._of(members))

    def broadcast_matrix(self, matrix: np.ndarray, members: Members | None = None) -> None:
        """Fill ``matrix`` on each of these ranks with that of the first one."""
        self._every.broadcast_matrix(matrix, self._of(members))

    def gather(self, value: Any, members: Members | None = None) -> list[Any]:
        """``value`` of each of these ranks, in their order."""
        return self._every.gather(value, self._of(members))

    def gather_bytes(self, sent: np.ndarray, members: Members | None = None) -> np.ndarray:
        """The uint8 arrays of these ranks, one after the other."""
        return self._every.gather_bytes(sent, self._of(members))

    def broadcast_bytes(self, contents: dict[int, np.ndarray], members: Members | None = None) -> list[np.ndarray]:
        """The uint8 arrays of several of these ranks, on all of them."""
        return self._every.broadcast_bytes(
            {self._ranks[root]: content for root, content in contents.items()}, self._of(members)
        )

    def concurrent_broadcasts(self) -> Broadcast:
        """Refused: they are among all ranks of the run."""
        raise StudyError("input_sharing: concurrent_broadcast is among all ranks; use multi_broadcast")

    def time_allreduce(self, size: int, repeats: int) -> list[float]:
        """Refused: it is among all ranks of the run."""
        raise StudyError("a member of an ensemble has no allreduce to measure")

    def traffic(self) -> Traffic:
        """The counters of this process."""
        return Traffic()

    def collect(self, mine: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(``mine`` of these ranks, no other processes)."""
        return self.gather(mine), []

    def close(self) -> None:
        """Nothing: the communicator of all ranks is closed."""

    def _of(self, members: Members | None) -> Members:
        """As the communicator of all ranks numbers them."""
        return self._ranks if members is None else tuple(self._ranks[rank] for rank in members)


class Alone:
    """A `study.communication.collectives.Communicator` of a member, which is the only rank of its run.

    Nothing that training does with it reaches another member.
    """

    strategy, sends_sparse = None, False
    rank, size = 0, 1

    def __init__(self, every: Communicator) -> None:
        """every: the communicator of all ranks."""
        self.local_rank, self.local_size = every.local_rank, 1
        self.own_threads, self.libraries = every.own_threads, every.libraries

    def create_process_sets(self, sets: list[Members]) -> None:
        """Nothing: there is one rank."""

    def distributed_optimizer(
        self, optimizer: Any, members: Members | None = None, compression: str = "none", backward_passes: int = 1
    ) -> Any:
        """``optimizer`` as it is: there is nothing to average."""
        return optimizer

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """None: there is nothing to average."""
        return None

    def observe_gradients(self, optimizer: Any, observe: Callable[[list[Any], list[Any]], None]) -> None:
        """Have each step of ``optimizer`` also do ``observe(gradients, gradients)``."""
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of Keras's LossScaleOptimizer
        compute = optimizer.compute_gradients

        def observed(*arguments: Any, **named: Any) -> Any:
            pairs = compute(*arguments, **named)
            gradients = [gradient for gradient, _ in pairs]
            observe(gradients, gradients)
            return pairs

        optimizer.compute_gradients = observed

    def broadcast_variables(self, variables: list[Any], members: Members | None = None) -> None:
        """Nothing: every member keeps its own."""

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

    def time_allreduce(self, size: int, repeats: int) -> list[float]:
        """Refused: there is no other rank."""
        raise StudyError("a member of an ensemble has no allreduce")

    def traffic(self) -> Traffic:
        """The counters of this process."""
        return Traffic()

    def collect(self, mine: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(``mine``, no other processes)."""
        return [mine], []

    def close(self) -> None:
        """Nothing: the communicator of all ranks is closed."""
