"""Communication between the ranks of a run, whatever carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Members = tuple[int, ...]  # ranks, ascending: a process set
Broadcast = Callable[[dict[int, np.ndarray]], list[np.ndarray]]  # of the arrays {rank: array} to all ranks


class Communicator(Protocol):
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
    sends_sparse: bool  # whether it was seen to send sparse gradients (of embeddings) as they are
    strategy: Any  # TensorFlow's strategy, in whose scope the model is made; None if the model is a local one

    def create_process_sets(self, sets: list[Members]) -> None:
        """Make process sets; all ranks must call, with the same ``sets``."""

    def distributed_optimizer(
        self, optimizer: Any, members: Members | None = None, compression: str = "none", backward_passes: int = 1
    ) -> Any:
        """``optimizer``, with each gradient averaged over the members before it is applied.

        compression: ``fp16`` to send 16 bits per value. backward_passes: steps whose gradients are averaged first; the
        others change no weights.
        """

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """Whether the gradients of ``variables``, as far as there are any, were averaged; None if it is not known.

        optimizer: of `distributed_optimizer`.
        """

    def observe_gradients(self, optimizer: Any, observe: Callable[[list[Any], list[Any]], None]) -> None:
        """Have each step of an optimizer of `distributed_optimizer` also do ``observe(gradients, averages)``.

        gradients, averages: tensors, one for each variable, before and after averaging. It is called when a step is
        traced.
        """

    def broadcast_variables(self, variables: list[Any], members: Members | None = None) -> None:
        """Set ``variables`` (TensorFlow's) on every member to the values of the first member."""

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
