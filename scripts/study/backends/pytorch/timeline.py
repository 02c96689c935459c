"""A timeline in Horovod's format: when each rank was ready for each collective operation, and when it was done.

Between the first and the last rank's readiness the operation waits; from then on it transfers. PyTorch's own profiler
shows both together.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.communication.collectives import Collectives
from study.core.files import write_aside
from study.instruments.phases import measure_zero_ns

if TYPE_CHECKING:
    from torch import Tensor

VARIABLE = "HOROVOD_TIMELINE"  # the file's path; Horovod reads the same one
Event = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """A collective operation of one rank.

    kind: as Horovod names it. values, type: of the tensor that was sent. ready_ns, done_ns: of the monotonic clock.
    """

    kind: str
    name: str
    values: int
    type: str
    ready_ns: int
    done_ns: int

    @classmethod
    def finish_now(cls, kind: str, name: str, sent: Tensor, ready_ns: int) -> Operation:
        """Make the operation on the tensor ``sent`` that has just finished."""
        return cls(kind, name, sent.numel(), str(sent.dtype).removeprefix("torch."), ready_ns, time.monotonic_ns())


class Timeline:
    """The operations of one rank. All ranks begin theirs in the same order, and may end them in another."""

    def __init__(self) -> None:
        self._zero_ns, self._operations = measure_zero_ns(), list[Operation]()

    @staticmethod
    def create_if_traced() -> Timeline | None:
        """Create a timeline if the run is traced, else None."""
        return Timeline() if VARIABLE in os.environ else None

    def add(self, operation: Operation) -> None:
        """Add an operation that is done."""
        self._operations.append(operation)

    def write(self, ranks: Collectives, library: str) -> None:
        """Gather the operations of all ranks; rank 0 writes the file. All ranks must call.

        library: that transfers, such as ``GLOO``.
        """
        everyone = ranks.gather((self._zero_ns, [astuple(each) for each in self._operations]))
        if ranks.rank:
            return
        by_rank = [_sort_by_begin([Operation(*each) for each in operations], zero) for zero, operations in everyone]
        together = list(zip(*by_rank, strict=False))  # of ranks that were lost, some are missing
        start_ns = min((each.ready_ns for operation in together for each in operation), default=0)
        events: list[Event] = [
            {
                "name": "process_name",
                "ph": "M",
                "pid": 0,
                "args": {"start_time_since_epoch_in_micros": start_ns // 1000},
            }
        ]
        numbers: dict[str, int] = {}
        for operation in together:
            events += _make_events(operation, start_ns, numbers, library)
        with write_aside(Path(os.environ[VARIABLE])) as aside:
            aside.write_text("[\n" + ",\n".join(json.dumps(each) for each in events) + "\n]\n")


def _sort_by_begin(operations: list[Operation], zero_ns: int) -> list[Operation]:
    """Sort operations by their begin, and convert times to the wall clock, which all ranks of a host share."""
    return [
        replace(each, ready_ns=each.ready_ns + zero_ns, done_ns=each.done_ns + zero_ns)
        for each in sorted(operations, key=lambda each: each.ready_ns)
    ]


def _make_events(by_rank: tuple[Operation, ...], start_ns: int, numbers: dict[str, int], library: str) -> list[Event]:
    """Make the events of one operation of all ranks. numbers: by tensor's name, in order of appearance; extended."""
    own, events = by_rank[0], []
    number = numbers.setdefault(own.name, len(numbers) + 1)
    if number == len(numbers):
        events.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": own.name}})
    ready = sorted(((each.ready_ns - start_ns) / 1000, rank) for rank, each in enumerate(by_rank))
    last = ready[-1][0]
    end_us = max(last, (own.done_ns - start_ns) / 1000)
    events.append({"ph": "B", "name": f"NEGOTIATE_{own.kind}", "ts": ready[0][0], "pid": number})
    events += [{"ph": "X", "name": str(rank), "ts": at, "pid": number, "dur": 0} for at, rank in ready]
    events.append({"ph": "E", "ts": last, "pid": number})
    transfer = "BCAST" if own.kind == "BROADCAST" else own.kind
    events += [{"ph": "B", "name": name, "ts": last, "pid": number} for name in (own.kind, f"{library}_{transfer}")]
    size = {"dtype": own.type, "shape": f"[{own.values}]"}
    return [*events, {"ph": "E", "ts": end_us, "pid": number}, {"ph": "E", "ts": end_us, "pid": number, "args": size}]
