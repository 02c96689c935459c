"""What a timeline's events say was going on when: an interval for each thing that each tensor went through."""

import math
from dataclasses import dataclass

NEGOTIATE = "NEGOTIATE_"
# What Horovod 0.28 calls its operations; every other name is an activity within one.
OPERATIONS = {"ALLREDUCE", "ALLGATHER", "BROADCAST", "JOIN", "ADASUM", "ALLTOALL", "BARRIER", "REDUCESCATTER",
              "PROCESS_SET_ADD", "PROCESS_SET_REMOVE", "ERROR"}  # fmt: skip
TRANSFERS = ("MPI_", "GLOO_", "NCCL_", "CCL_")  # libraries, whose names begin the activities that move data
ITEM_BYTES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "float32": 4,
              "float64": 8, "bool": 1}  # fmt: skip


@dataclass(slots=True)
class Interval:
    """One thing that a tensor went through. begin, end: microseconds since the timeline's start.

    operation: ``ALLREDUCE``, ``BROADCAST``, ...; part: ``negotiation``, ``operation`` (all after the negotiation),
    and of that ``transfer``, ``copies`` (into and out of the fusion buffer) or ``other``. ready: (time, rank) of the
    ranks in the order in which a negotiation saw them; Horovod's response cache leaves them out. fused: a number
    that all tensors of one fused operation share, 0 where nothing was transferred. bytes: of the tensor, where the
    end of its operation tells.
    """

    operation: str
    part: str
    begin: float
    end: float
    ready: list
    fused: int
    bytes: int | None


class Intervals:
    """Iterates over the `Interval` objects in events, in the order of their ends.

    events: how many there were; dropped: those without their other half, or not Horovod's; start_wall_us: when the
    timeline began, microseconds since 1970, or None.
    """

    def __init__(self, events):
        self._events = events
        self.events = self.dropped = 0
        self.start_wall_us = None

    def __iter__(self):
        self._open, self._fused, self._moving = {}, 0, None
        for event in self._events:
            self.events += 1
            try:
                phase = event["ph"]
                if phase == "B":
                    self._begin(event["pid"], event["name"], float(event["ts"]))
                elif phase == "E":
                    yield self._end(event["pid"], float(event["ts"]), event.get("args"))
                elif phase == "X":
                    self._open[event["pid"]][-1].ready.append((float(event["ts"]), int(event["name"])))
                elif phase == "M":
                    self.start_wall_us = event["args"].get("start_time_since_epoch_in_micros", self.start_wall_us)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                self.dropped += 1
        self.dropped += sum(map(len, self._open.values()))

    def _begin(self, pid, name, time):
        stack = self._open.setdefault(pid, [])
        if stack and (name in OPERATIONS or name.startswith(NEGOTIATE)):  # the end of what came before was lost
            self.dropped += len(stack)
            stack.clear()
        stack.append(_Open(name, time))
        if name.startswith(TRANSFERS):
            # Horovod begins the transfer of all tensors of a fused operation before it ends the first one's.
            self._fused += self._moving != name
            self._moving = name
            stack[0].fused = stack[0].fused or self._fused

    def _end(self, pid, time, arguments):
        stack = self._open[pid]
        ended = stack.pop()
        if ended.name.startswith(TRANSFERS):
            self._moving = None
        operation = stack[0].name if stack else ended.name.removeprefix(NEGOTIATE)
        size = _bytes(arguments) if arguments and not stack else None
        part = _part(ended.name, within=bool(stack))
        return Interval(operation, part, ended.begin, max(ended.begin, time), ended.ready, ended.fused, size)


class _Open:
    """A begin that waits for its end."""

    __slots__ = ("name", "begin", "ready", "fused")

    def __init__(self, name, begin):
        self.name, self.begin, self.ready, self.fused = name, begin, [], 0


def _part(name, within):
    if name.startswith(NEGOTIATE):
        return "negotiation"
    if not within:
        return "operation"
    if "MEMCPY" in name:
        return "copies"
    return "transfer" if name.startswith(TRANSFERS) else "other"


def _bytes(arguments):
    """Size of a tensor from ``{"dtype": "float32", "shape": "[200, 20]"}``; None for a type that is not known."""
    lengths = [int(length) for length in arguments["shape"].strip("[]").split(",") if length.strip()]
    item = ITEM_BYTES.get(arguments["dtype"])
    return None if item is None else item * math.prod(lengths)
