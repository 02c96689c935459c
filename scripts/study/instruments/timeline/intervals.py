"""Intervals from a timeline's events: when each tensor went through each activity."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

NEGOTIATE = "NEGOTIATE_"
# Horovod 0.28's names of its operations; every other name is an activity within one.
OPERATIONS = {"ALLREDUCE", "ALLGATHER", "BROADCAST", "JOIN", "ADASUM", "ALLTOALL", "BARRIER", "REDUCESCATTER",
              "PROCESS_SET_ADD", "PROCESS_SET_REMOVE", "ERROR"}  # fmt: skip
TRANSFERS = ("MPI_", "GLOO_", "NCCL_", "CCL_")  # prefixes (library names) of the activities that move data
ITEM_BYTES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "float32": 4,
              "float64": 8, "bool": 1}  # fmt: skip


LONGEST_US = 1e14  # of a run: three years
LATEST_US = 1e17  # since 1970
MOST_BYTES = 2**50  # of a tensor


@dataclass(slots=True)
class Interval:
    """One activity of a tensor. begin, end: microseconds since the timeline's start.

    operation: ``ALLREDUCE``, ``BROADCAST``, ... part: ``negotiation``, ``operation`` (everything after the
    negotiation), and within an operation ``transfer``, ``copies`` (into and out of the fusion buffer) or ``other``.
    ready: (time, rank) of the ranks in the order in which a negotiation saw them; Horovod's response cache omits them.
    fused: a number shared by all tensors of one fused operation, 0 if nothing was transferred. bytes: of the tensor, if
    the end of its operation reports it.
    """

    operation: str
    part: str
    begin: float
    end: float
    ready: list[tuple[float, int]]
    fused: int
    bytes: int | None


class Intervals:
    """Iterates over the `Interval` objects in events, in the order of their ends.

    events: their number. dropped: events without a matching begin or end, or not of Horovod. start_wall_us: begin of
    the timeline, microseconds since 1970, or None.
    """

    def __init__(self, events: Iterable[dict[str, Any]]) -> None:
        self._events = events
        self.events = self.dropped = 0
        self.start_wall_us: float | None = None

    def __iter__(self) -> Iterator[Interval]:
        self._open: dict[int, list[_Open]] = {}
        self._fused = 0
        self._moving: str | None = None
        for event in self._events:
            self.events += 1
            try:
                phase = event["ph"]
                if phase == "B":
                    self._begin(event["pid"], event["name"], _time(event["ts"]))
                elif phase == "E":
                    yield self._end(event["pid"], _time(event["ts"]), event.get("args"))
                elif phase == "X":
                    self._open[event["pid"]][-1].ready.append((_time(event["ts"]), int(event["name"])))
                elif phase == "M" and "start_time_since_epoch_in_micros" in event["args"]:
                    self.start_wall_us = _time(event["args"]["start_time_since_epoch_in_micros"], LATEST_US)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                self.dropped += 1
        self.dropped += sum(map(len, self._open.values()))

    def _begin(self, pid: int, name: str, time: float) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r}")
        stack = self._open.setdefault(pid, [])
        if stack and (name in OPERATIONS or name.startswith(NEGOTIATE)):  # the previous end was lost
            self.dropped += len(stack)
            stack.clear()
        stack.append(_Open(name, time))
        if name.startswith(TRANSFERS):
            # Horovod begins the transfer of all tensors of a fused operation before it ends the first one's.
            self._fused += self._moving != name
            self._moving = name
            stack[0].fused = stack[0].fused or self._fused

    def _end(self, pid: int, time: float, arguments: dict[str, Any] | None) -> Interval:
        stack = self._open[pid]
        ended = stack.pop()
        if ended.name.startswith(TRANSFERS):
            self._moving = None
        operation = stack[0].name if stack else ended.name.removeprefix(NEGOTIATE)
        size = _bytes(arguments) if arguments and not stack else None
        part = _part(ended.name, within=bool(stack))
        return Interval(operation, part, ended.begin, max(ended.begin, time), ended.ready, ended.fused, size)


class _Open:
    """A begin whose end has not come yet."""

    __slots__ = ("name", "begin", "ready", "fused")

    def __init__(self, name: str, begin: float) -> None:
        self.name, self.begin, self.fused = name, begin, 0
        self.ready: list[tuple[float, int]] = []


def _time(told: Any, latest: float = LONGEST_US) -> float:
    """A time in microseconds; raises ValueError for one that no run has: activity over time would have no end."""
    if isinstance(told, bool) or not 0 <= float(told) < latest:
        raise ValueError(f"{told} microseconds")
    return float(told)


def _part(name: str, within: bool) -> str:
    if name.startswith(NEGOTIATE):
        return "negotiation"
    if not within:
        return "operation"
    if "MEMCPY" in name:
        return "copies"
    return "transfer" if name.startswith(TRANSFERS) else "other"


def _bytes(arguments: dict[str, Any]) -> int | None:
    """Size of a tensor from ``{"dtype": "float32", "shape": "[200, 20]"}``; None for an unknown type."""
    lengths = [int(length) for length in arguments["shape"].strip("[]").split(",") if length.strip()]
    item = ITEM_BYTES.get(arguments["dtype"])
    size = None if item is None else item * math.prod(lengths)
    if size is not None and not 0 <= size < MOST_BYTES:
        raise ValueError(f"{size} bytes")
    return size
