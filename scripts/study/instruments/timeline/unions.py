"""Unions of intervals and activity over time, in memory that is independent of the number of intervals."""

from collections.abc import Callable, Sequence

import numpy as np

PENDING = 4096  # parts of a union that a late interval can still change
BINS = 4096  # the most bins that activity over time has


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
