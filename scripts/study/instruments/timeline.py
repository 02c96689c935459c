"""A run's broadcast and allreduce from Horovod's timeline: totals for the record, and activity over time.

The figures are icpp2019's 7, 12 and 19. Memory does not depend on the number of intervals.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study.core import validation
from study.core.csv_files import FINITE, WHOLE, read_csv
from study.core.errors import StudyError
from study.core.file_kinds import recognize_file
from study.core.files import AnyPath
from study.core.lazy import pandas as pd
from study.instruments import phases
from study.instruments.timeline_events import Events, Interval, Intervals

PENDING = 4096  # parts of a union that a late interval can still change
BINS = 4096  # the most bins that activity over time has

MICRO = 1e-6
# Begins of names of kinds that a timeline may be, damaged.
MAY_BE = ("a JSON file", "compressed with gzip", "zero bytes")
FIRST_BIN_US = 1000.0
PARTS = {"broadcast": ("negotiation", "transfer"), "allreduce": ("negotiation", "operation", "transfer", "copies")}

FILE = "timeline.json.gz"
EPOCHS = {"begin_monotonic_ns": WHOLE, "time_s": FINITE}  # columns of history.csv


class Union:
    """The union of intervals that come in the order of their ends, or all in the order of their begins.

    Tensors that are fused repeat one interval.

    Each part of the union is passed to the functions in ``to`` as (begin, end), ascending, once ``PENDING`` later parts
    exist or at `close`. An interval that is longer than that many parts is cut off at its begin.
    """

    def __init__(self, *to: Callable[[float, float], object]) -> None:
        self._parts: list[tuple[float, float]] = []
        self._to, self._before = to, float("-inf")

    def add(self, begin: float, end: float) -> None:
        """Add one more interval."""
        begin, parts = max(begin, self._before), self._parts
        while parts and parts[-1][1] >= begin:
            earlier = parts.pop()
            begin, end = min(begin, earlier[0]), max(end, earlier[1])
        if end > begin:
            parts.append((begin, end))
        if len(parts) > 2 * PENDING:
            self._hand_on(PENDING)

    def close(self) -> None:
        """Pass on the remaining parts."""
        self._hand_on(len(self._parts))

    def _hand_on(self, number: int) -> None:
        for begin, end in self._parts[:number]:
            for take in self._to:
                take(begin, end)
            self._before = end
        del self._parts[:number]


class Total:
    """The length of all parts of a union, in total and in each of some consecutive windows."""

    def __init__(self, edges: Sequence[float] = ()) -> None:
        """edges: where the windows begin, ascending, and the end of the last window."""
        self.length = 0.0
        self._edges = np.asarray(edges, dtype=float)
        self.by_window = np.zeros(max(0, len(self._edges) - 1))

    def __call__(self, begin: float, end: float) -> None:
        """Count one part."""
        self.length += end - begin
        if len(self.by_window) == 0:
            return
        window = max(0, int(np.searchsorted(self._edges, begin, side="right")) - 1)
        while window < len(self.by_window) and self._edges[window] < end:
            inside = min(end, self._edges[window + 1]) - max(begin, self._edges[window])
            self.by_window[window] += max(0.0, inside)
            window += 1


class Bins:
    """Busy time in equal bins of time from 0 on; their width doubles whenever there would be more than `BINS`."""

    def __init__(self, width: float) -> None:
        self.width, self.busy = width, np.zeros(BINS)

    def __call__(self, begin: float, end: float) -> None:
        """Count one part; parts of a union do not overlap, so that no bin is busy for longer than its width."""
        while end >= self.width * BINS:
            self.coarsen()
        first, last = int(begin // self.width), int(end // self.width)
        if first == last:
            self.busy[first] += end - begin
        else:
            self.busy[first] += (first + 1) * self.width - begin
            self.busy[first + 1 : last] += self.width
            self.busy[last] += end - last * self.width

    def coarsen(self) -> None:
        """Make each bin twice as wide."""
        self.busy = np.concatenate([self.busy.reshape(-1, 2).sum(axis=1), np.zeros(BINS // 2)])
        self.width *= 2


@dataclass(frozen=True)
class Communication:
    """summary: the record's ``communication``, a dict. activity: a data frame, see `_make_activity`."""

    summary: dict[str, Any]
    activity: pd.DataFrame


def summarize_timeline(path: AnyPath, epoch_edges_ns: Sequence[int] = ()) -> Communication:
    """The `Communication` in a timeline file; empty if the file does not exist.

    epoch_edges_ns: wall time (ns) at which rank 0's epochs began, and the end of the last one. Memory is independent of
    the file's size. Raises `StudyError` for a file without an event that is of another known kind.
    """
    events = Events(path)
    intervals = Intervals(events)
    collected: _Collected | None = None
    for interval in intervals:
        if collected is None:  # the start time precedes all intervals
            collected = _Collected(_to_microseconds(epoch_edges_ns, intervals.start_wall_us))
        collected.take(interval)
    if not intervals.events and events.lost_bytes:
        _refuse_another_kind(path)
    collected = collected or _Collected([])
    collected.close()
    read = {"events": intervals.events, "dropped_events": intervals.dropped, "lost_bytes": events.lost_bytes}
    return Communication(collected.summary() | read, _make_activity(collected.bins, intervals.start_wall_us))


def _refuse_another_kind(path: AnyPath) -> None:
    kind = recognize_file(path)
    if kind is not None and not kind.name.startswith(MAY_BE):
        raise StudyError(
            f"{path}: is no timeline of Horovod: it is {kind.name}; restore the run's folder, or delete it"
        )


def _to_microseconds(edges_ns: Iterable[int], start_wall_us: float | None) -> list[float]:
    if start_wall_us is None:
        return []
    return [edge / 1000 - start_wall_us for edge in edges_ns]


class _Collected:
    """Everything that is collected while the intervals are read."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self.bins = {key: Bins(FIRST_BIN_US) for key in _list_keys()}
        self._totals = {key: Total(edges) for key in _list_keys()}
        self._unions = {key: Union(self._totals[key], self.bins[key]) for key in _list_keys()}
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


def _list_keys() -> list[tuple[str, str]]:
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
    """Time for which the others waited for each rank: the union of negotiations in which it was ready last."""

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


def _make_activity(bins: dict[tuple[str, str], Bins], start_wall_us: float | None) -> pd.DataFrame:
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
    is_shown = busy | np.roll(busy, 1) | np.roll(busy, -1)
    if start_wall_us is None:
        is_shown[:] = False
    middle_us = (start_wall_us or 0) + (np.arange(len(busy)) + 0.5) * width
    columns = {"wall_ns": (middle_us * 1000).astype(np.int64), "bin_s": width * MICRO, **shares}
    return pd.DataFrame(columns)[is_shown].reset_index(drop=True)


def read_communication(folder: AnyPath) -> Communication:
    """The `study.instruments.timeline.Communication` of a traced run's directory, complete or not.

    It has no times by epoch if a host's clock was set during the run: epochs begin by that clock, and events do not.
    The activity's wall times are those of the launching host's clock, as in the run's other files.
    """
    folder = Path(folder)
    history = folder / "history.csv"
    log = folder / "phases.jsonl"
    of_ranks = phases.read_edges(log) if log.exists() else []
    edges = []
    if history.exists() and phases.find_set_clock(of_ranks) is None:
        edges = _list_epoch_edges_ns(read_csv(history, EPOCHS), _find_first_zero_ns(folder, of_ranks))
    communication = summarize_timeline(folder / FILE, edges)
    communication.activity["wall_ns"] -= _read_first_offset_ns(folder)
    return communication


def _read_first_offset_ns(folder: Path) -> int:
    """Nanoseconds by which the clock of rank 0's host, which wrote the timeline, is ahead of the launching host's."""
    hosts = validation.load_valid_json(folder / "provenance.json", "provenance").get("hosts", [])
    return round(hosts[0]["clock_offset_s"] * 1e9) if hosts else 0


def _find_first_zero_ns(folder: Path, edges: list[dict[str, Any]]) -> int | None:
    """When the monotonic clock of rank 0's host was 0, by that host's wall clock; None without an edge of rank 0."""
    host = next((edge["host"] for edge in edges if edge["rank"] == 0), None)
    return None if host is None else phases.compute_zeros_ns(edges)[host] + _read_first_offset_ns(folder)


def _list_epoch_edges_ns(history: pd.DataFrame, zero_ns: int | None) -> list[int]:
    """Wall time (ns) at which each epoch began, and at which the last one ended, as events of the timeline have it.

    The timeline has the wall time of its begin and counts by a monotonic clock from there, so epochs are told likewise.
    zero_ns: when that clock was 0; without it, nothing is known of epochs.
    """
    if zero_ns is None or history.empty:
        return []
    begins = (history["begin_monotonic_ns"] + zero_ns).tolist()
    return [*begins, begins[-1] + int(history["time_s"].iloc[-1] * 1e9)]
