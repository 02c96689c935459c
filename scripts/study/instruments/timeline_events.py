"""Horovod's timeline, read piece by piece: its events, and when each tensor went through each activity.

The file is one JSON array of Chrome trace events, several per line. If the run was killed, the file is truncated,
perhaps in the middle of an event.
"""

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.core.file_kinds import GZIP, read_first_bytes
from study.core.files import AnyPath

PIECE = 1 << 20  # bytes read at once
LONGEST_BYTES = 16 << 20  # bytes without a boundary between events that are treated as damaged
BOUNDARIES = (b"},{", b"},\n{")
BETWEEN = b"[],\n\r\t "  # what may stand between events
START = re.compile(r'\{\s*"(?:ph|name)"')
DECODER = json.JSONDecoder()

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


class Events:
    """Iterates over the events of a file (``.gz`` or not), each a dict; ``lost_bytes`` counts unreadable bytes."""

    def __init__(self, path: AnyPath) -> None:
        self._path = Path(path)
        self.lost_bytes, self._has_begun = 0, False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.lost_bytes, self._has_begun = 0, False
        rest = b""
        for piece in self._read_pieces():
            rest += piece
            end = max(rest.rfind(boundary) for boundary in BOUNDARIES) + 1
            if end > 0:
                yield from self._decode(rest[:end])
                rest = rest[end:]
            elif len(rest) > LONGEST_BYTES:
                yield from self._decode_one_by_one(rest)
                rest = b""
        yield from self._decode(rest)

    def _decode(self, text: bytes) -> Iterator[dict[str, Any]]:
        """The events in ``text``; an undamaged text begins and ends between two events."""
        try:
            events = json.loads(b"[" + text.strip(BETWEEN) + b"]")
        except (ValueError, RecursionError):
            yield from self._decode_one_by_one(text)
        else:
            self._count_lost(text[: len(text) - len(text.lstrip(BETWEEN))].decode())
            self._has_begun |= bool(events)
            yield from (event for event in events if isinstance(event, dict))

    def _decode_one_by_one(self, damaged: bytes) -> Iterator[dict[str, Any]]:
        """Every complete event in damaged text; the bytes between them are counted as lost."""
        text, position = damaged.decode("utf-8", errors="replace"), 0
        while match := START.search(text, position):
            self._count_lost(text[position : match.start()])
            try:
                event, position = DECODER.raw_decode(text, match.start())
                self._has_begun = True
                yield event
            except (ValueError, RecursionError):
                position = match.end()
                self._count_lost(match.group())
        self._count_lost(text[position:])

    def _count_lost(self, text: str) -> None:
        """Count what stands between events. A second list of events counts too: the file has been written twice."""
        self.lost_bytes += len(text.strip(BETWEEN.decode() + "\0")) + (self._has_begun and "[" in text)

    def _read_pieces(self) -> Iterator[bytes]:
        if not self._path.exists():  # the run ended before it communicated
            return
        is_compressed = read_first_bytes(self._path, len(GZIP)) == GZIP  # whatever its name is
        with gzip.open(self._path) if is_compressed else open(self._path, "rb") as handle:
            is_empty = is_compressed or self._path.suffix == ".gz"  # only a timeline with a begin is compressed
            while True:
                try:
                    piece = handle.read(PIECE)
                except (EOFError, zlib.error, gzip.BadGzipFile):  # a compressed file that is truncated or damaged
                    self.lost_bytes += 1  # the true number is unknown
                    return
                if not piece:
                    self.lost_bytes += is_empty
                    return
                is_empty = is_empty and not piece.strip(BETWEEN + b"\0")
                yield piece


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
                    self._begin(event["pid"], event["name"], _parse_time(event["ts"]))
                elif phase == "E":
                    yield self._end(event["pid"], _parse_time(event["ts"]), event.get("args"))
                elif phase == "X":
                    self._open[event["pid"]][-1].ready.append((_parse_time(event["ts"]), int(event["name"])))
                elif phase == "M" and "start_time_since_epoch_in_micros" in event["args"]:
                    self.start_wall_us = _parse_time(event["args"]["start_time_since_epoch_in_micros"], LATEST_US)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                self.dropped += 1
        self.dropped += sum(map(len, self._open.values()))

    def _begin(self, pid: int, name: str, time: float) -> None:
        """Open an interval within those that a process has open; drop these if their ends were lost."""
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
        size = _compute_bytes(arguments) if arguments and not stack else None
        part = _classify_part(ended.name, within=bool(stack))
        return Interval(operation, part, ended.begin, max(ended.begin, time), ended.ready, ended.fused, size)


class _Open:
    """A begin whose end has not come yet."""

    __slots__ = ("name", "begin", "ready", "fused")

    def __init__(self, name: str, begin: float) -> None:
        self.name, self.begin, self.fused = name, begin, 0
        self.ready: list[tuple[float, int]] = []


def _parse_time(value: Any, latest: float = LONGEST_US) -> float:
    """A time in microseconds; raises ValueError for one that no run has: activity over time would have no end."""
    if isinstance(value, bool) or not 0 <= float(value) < latest:
        raise ValueError(f"{value} microseconds")
    return float(value)


def _classify_part(name: str, within: bool) -> str:
    if name.startswith(NEGOTIATE):
        return "negotiation"
    if not within:
        return "operation"
    if "MEMCPY" in name:
        return "copies"
    return "transfer" if name.startswith(TRANSFERS) else "other"


def _compute_bytes(arguments: dict[str, Any]) -> int | None:
    """Size of a tensor from ``{"dtype": "float32", "shape": "[200, 20]"}``; None for an unknown type."""
    lengths = [int(length) for length in arguments["shape"].strip("[]").split(",") if length.strip()]
    item = ITEM_BYTES.get(arguments["dtype"])
    size = None if item is None else item * math.prod(lengths)
    if size is not None and not 0 <= size < MOST_BYTES:
        raise ValueError(f"{size} bytes")
    return size
