"""A run's communication from its timeline: totals for the run record, and activity over time for the figure."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.core.file_kinds import kind_of
from study.core.files import AnyPath
from study.core.lazy import pandas as pd
from study.instruments.timeline.events import Events
from study.instruments.timeline.intervals import Interval, Intervals
from study.instruments.timeline.unions import Bins, Total, Union

MICRO = 1e-6
# Begins of names of kinds that a timeline may be, damaged.
MAY_BE = ("a JSON file", "compressed with gzip", "zero bytes")
FIRST_BIN_US = 1000.0
PARTS = {
    "broadcast": ("negotiation", "transfer"),
    "allreduce": ("negotiation", "operation", "transfer", "copies"),
}


@dataclass(frozen=True)
class Communication:
    """summary: the record's ``communication``, a dict. activity: a data frame, see `_activity`."""

    summary: dict[str, Any]
    activity: pd.DataFrame


def summarize(path: AnyPath, epoch_edges_ns: Sequence[int] = ()) -> Communication:
    """The `Communication` in a timeline file; empty if the file does not exist.

    epoch_edges_ns: wall time (ns) at which rank 0's epochs began, and the end of the last one. Memory is independent of
    the file's size. Raises `StudyError` for a file without an event that is of another known kind.
    """
    events = Events(path)
    intervals = Intervals(events)
    collected: _Collected | None = None
    for interval in intervals:
        if collected is None:  # the start time precedes all intervals
            collected = _Collected(_microseconds(epoch_edges_ns, intervals.start_wall_us))
        collected.take(interval)
    if not intervals.events and events.lost_bytes:
        _refuse_another_kind(path)
    collected = collected or _Collected([])
    collected.close()
    read = {"events": intervals.events, "dropped_events": intervals.dropped, "lost_bytes": events.lost_bytes}
    return Communication(collected.summary() | read, _activity(collected.bins, intervals.start_wall_us))


def _refuse_another_kind(path: AnyPath) -> None:
    kind = kind_of(path)
    if kind is not None and not kind.name.startswith(MAY_BE):
        raise StudyError(
            f"{path}: is no timeline of Horovod: it is {kind.name}; restore the run's folder, or delete it"
        )


def _microseconds(edges_ns: Iterable[int], start_wall_us: float | None) -> list[float]:
    if start_wall_us is None:
        return []
    return [edge / 1000 - start_wall_us for edge in edges_ns]


class _Collected:
    """Everything that is collected while the intervals are read."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self.bins = {key: Bins(FIRST_BIN_US) for key in _keys()}
        self._totals = {key: Total(edges) for key in _keys()}
        self._unions = {key: Union(self._totals[key], self.bins[key]) for key in _keys()}
        self._broadcast = _Broadcast()
        self._fused = _FusedOperations()
        self._waiting = _WaitingForRanks()

    def take(self, interval: Interval) -> None:
        operation = interval.operation.lower()
        if operation not in PARTS:
            return
        key = operation, interval.part
        if key in self._unions:
            self._unions[key].add(interval.begin, interval.end)
        if operation == "broadcast":
            self._broadcast.take(interval)
        elif interval.part == "operation":
            self._fused.take(interval)
        if interval.part == "negotiation":
            self._waiting.take(interval)

    def close(self) -> None:
        for union in self._unions.values():
            union.close()
        self._waiting.close()

    def summary(self) -> dict[str, Any]:
        seconds = {key: total.length * MICRO for key, total in self._totals.items()}
        return {
            **self._broadcast.summary(),
            **{f"broadcast_{part}_s": seconds["broadcast", part] for part in PARTS["broadcast"]},
            "allreduce": {f"{part}_s": seconds["allreduce", part] for part in PARTS["allreduce"]},
            "allreduce_epochs": [
                {f"{part}_s": self._totals["allreduce", part].by_window[epoch] * MICRO for part in PARTS["allreduce"]}
                for epoch in range(len(self._edges) - 1)
            ],
            **self._fused.summary(),
            **self._waiting.summary(),
        }


def _keys() -> list[tuple[str, str]]:
    return [(operation, part) for operation, parts in PARTS.items() for part in parts]


class _Broadcast:
    """The broadcast as a whole: its span, and the part of it before the last rank arrived."""

    def __init__(self) -> None:
        self._begin, self._all_there, self._end = float("inf"), float("inf"), float("-inf")

    def take(self, interval: Interval) -> None:
        self._begin = min(self._begin, interval.begin)
        self._end = max(self._end, interval.end)
        if interval.part == "negotiation":  # first end: all ranks were ready for some tensor
            self._all_there = min(self._all_there, interval.end)

    def summary(self) -> dict[str, Any]:
        there = self._end > self._begin
        return {
            "broadcast_span_s": (self._end - self._begin) * MICRO if there else None,
            "broadcast_skew_s": (min(self._all_there, self._end) - self._begin) * MICRO if there else None,
        }


class _FusedOperations:
    """Number and size of the fused allreduce operations, and the time of the first one."""

    def __init__(self) -> None:
        self._operations = self._tensors = self._largest = self._bytes = 0
        self._now: int | None = None
        self._now_bytes = 0
        self._first = (float("inf"), 0.0)  # begin, length

    def take(self, interval: Interval) -> None:
        if interval.fused == 0 or interval.fused != self._now:
            self._operations += 1
            self._now, self._now_bytes = interval.fused, 0
        self._tensors += 1
        if interval.begin < self._first[0]:  # they come in the order of their ends
            self._first = interval.begin, interval.end - interval.begin
        self._bytes += interval.bytes or 0
        self._now_bytes += interval.bytes or 0
        self._largest = max(self._largest, self._now_bytes)

    def summary(self) -> dict[str, Any]:
        there = self._operations > 0
        return {
            "allreduce_first_s": self._first[1] * MICRO if there else None,
            "allreduce_operations": self._operations,
            "allreduce_tensors": self._tensors,
            "allreduce_mean_mb": self._bytes / self._operations / 1e6 if there else None,
            "allreduce_largest_mb": self._largest / 1e6 if there else None,
        }


class _WaitingForRanks:
    """How long the others waited for each rank: the union of the negotiations in which it was the last to be ready."""

    def __init__(self) -> None:
        self._all = Total()
        self._union = Union(self._all)
        self._totals: dict[int, Total] = collections.defaultdict(Total)
        self._unions: dict[int, Union] = {}
        self._negotiations = 0

    def take(self, interval: Interval) -> None:
        if len(interval.ready) < 2:
            return
        (first, _), (last, rank) = interval.ready[0], interval.ready[-1]
        self._negotiations += 1
        self._union.add(first, last)
        if rank not in self._unions:
            self._unions[rank] = Union(self._totals[rank])
        self._unions[rank].add(first, last)

    def close(self) -> None:
        for union in [self._union, *self._unions.values()]:
            union.close()

    def summary(self) -> dict[str, Any]:
        """The slowest rank, and its share of all waiting; None if no negotiation tells when each rank was ready."""
        slowest = max(self._totals, key=lambda rank: self._totals[rank].length, default=None)
        waited = self._all.length
        share = self._totals[slowest].length / waited if slowest is not None and waited else None
        return {
            "negotiations_with_ranks": self._negotiations,
            "slowest_rank": slowest if share is not None else None,
            "slowest_rank_share": share,
        }


def _activity(bins: dict[tuple[str, str], Bins], start_wall_us: float | None) -> pd.DataFrame:
    """One row per bin of time with any activity, and an idle one on each side of it.

    Columns: ``wall_ns`` (middle of the bin), ``bin_s`` and, for each of `PARTS`, the busy share of the bin
    (``broadcast_transfer``, ...). Empty if the timeline does not contain its start time.
    """
    width = max(each.width for each in bins.values())
    for each in bins.values():
        while each.width < width:
            each.coarsen()
    shares = {"_".join(key): each.busy / width for key, each in bins.items()}
    busy = np.any([share > 0 for share in shares.values()], axis=0)
    shown = busy | np.roll(busy, 1) | np.roll(busy, -1)
    if start_wall_us is None:
        shown[:] = False
    middle_us = (start_wall_us or 0) + (np.arange(len(busy)) + 0.5) * width
    columns = {"wall_ns": (middle_us * 1000).astype(np.int64), "bin_s": width * MICRO, **shares}
    return pd.DataFrame(columns)[shown].reset_index(drop=True)
