"""How full an ensemble's queues of samples are, and how many cores its ranks use, over time.

A rank makes a row when it takes a block of samples and the row before is old enough. So nothing runs besides the rank
for it. The rows are few: when there are too many, two neighbours become one.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from study.core.csv_files import FINITE, NAME, WHOLE, read_csv
from study.core.files import AnyPath, write_aside
from study.core.lazy import pandas as pd
from study.instruments import counters
from study.instruments.phases import now

FILE = "usage.csv"  # in the run's directory
# One row per rank and interval. queue_fill: share of the rank's queue that was full when it took a block, 0 to 1, mean;
# empty if it took none. cores_used: processor time of the rank, and of its children that have ended, / seconds.
COLUMNS = {"rank": WHOLE, "host": NAME, "begin_wall_ns": WHOLE, "seconds": FINITE, "queue_fill": FINITE,
           "cores_used": FINITE, "begin_monotonic_ns": WHOLE}  # fmt: skip
SHORTEST_S = 0.25  # of a row at first
MOST_ROWS = 240  # of a rank


class _Row(NamedTuple):
    """An interval: seconds and processor seconds until its end, and of the blocks taken in it the fills' sum."""

    end_s: float
    cpu_s: float
    fills: float
    blocks: int

    def and_then(self, later: _Row) -> _Row:
        """One interval: this one and the one that follows it."""
        return _Row(later.end_s, later.cpu_s, self.fills + later.fills, self.blocks + later.blocks)


class Usage:
    """Records what one rank uses, from `begin` to `end`."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = counters.read_process_cpu_s,
    ) -> None:
        """clock, cpu_s: seconds, and processor seconds; others than the real ones are for tests."""
        self._clock, self._cpu_s = clock, cpu_s
        self._interval = SHORTEST_S
        self._changing = threading.Lock()  # blocks are taken by a thread of TensorFlow's
        self._rows: list[_Row] = []
        self._fills, self._blocks = 0.0, 0  # of the row that is not complete

    def begin(self) -> None:
        """Training begins."""
        self._begun_ns = now()
        self._begun_s, self._begun_cpu_s = self._clock(), self._cpu_s()

    def note_block(self, fill: float) -> None:
        """The rank takes a block. fill: share of its queue that is full, 0 to 1."""
        with self._changing:
            self._fills, self._blocks = self._fills + fill, self._blocks + 1
            if self._clock() - self._last.end_s >= self._interval:
                self._close()

    def end(self) -> None:
        """An interval ends here, such as with the training; a short one counts to the one before."""
        with self._changing:
            self._close()

    @property
    def queue_fill(self) -> float | None:
        """The mean over all blocks taken; None if none was."""
        fills, blocks = (sum(getattr(row, name) for row in self._rows) for name in ("fills", "blocks"))
        return (fills + self._fills) / (blocks + self._blocks) if blocks + self._blocks else None

    @property
    def _last(self) -> _Row:
        """The last complete row, or the begin."""
        return self._rows[-1] if self._rows else _Row(self._begun_s, self._begun_cpu_s, 0.0, 0)

    def _close(self) -> None:
        row = _Row(self._clock(), self._cpu_s(), self._fills, self._blocks)
        self._fills, self._blocks = 0.0, 0
        if self._rows and row.end_s - self._last.end_s < self._interval / 2:
            self._rows[-1] = self._rows[-1].and_then(row)
            return
        self._rows.append(row)
        if len(self._rows) > MOST_ROWS:
            pairs = itertools.zip_longest(self._rows[::2], self._rows[1::2])
            self._rows = [first.and_then(second) if second else first for first, second in pairs]
            self._interval *= 2

    def write(self, path: AnyPath, rank: int) -> None:
        """Write the rows of this rank, whole or not at all."""
        begun = _Row(self._begun_s, self._begun_cpu_s, 0.0, 0)
        rows = []
        for before, row in itertools.pairwise([begun, *self._rows]):
            seconds = row.end_s - before.end_s
            if seconds > 0:
                wall, monotonic = (each + round((before.end_s - self._begun_s) * 1e9) for each in self._begun_ns)
                fill, cores = row.fills / row.blocks if row.blocks else None, (row.cpu_s - before.cpu_s) / seconds
                rows.append([rank, socket.gethostname(), wall, seconds, fill, cores, monotonic])
        _write(pd.DataFrame(rows, columns=list(COLUMNS)), path)


def merge(ranks: Path, path: Path, offsets: Mapping[str, int]) -> None:
    """Write the rows of all ranks into one file; no file if no rank has left any.

    ranks: the folder of the ranks' files. offsets: {host: nanoseconds by which its clock is ahead}, subtracted from the
    wall times.
    """
    parts = [read(part) for part in sorted(ranks.glob("usage-*.csv"))]
    if parts:
        every = pd.concat(parts, ignore_index=True)
        ahead = every["host"].map(lambda host: offsets.get(host, 0)).astype("int64")
        _write(every.assign(begin_wall_ns=every["begin_wall_ns"] - ahead), path)


def read(path: AnyPath) -> pd.DataFrame:
    """The rows of a run or of a rank; raises `StudyError` for another file."""
    return read_csv(path, COLUMNS)


def _write(frame: pd.DataFrame, path: AnyPath) -> None:
    with write_aside(path) as aside:
        frame.to_csv(aside, index=False)
