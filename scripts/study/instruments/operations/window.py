"""The steps of a run that are profiled, by a framework's profiler, and how its clock is read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from study.core.errors import StudyError
from study.instruments.operations.profile import Operation, Profile, Span

MOST_STEPS = 20
WARM_UP = 5  # steps of the epoch before the first one that is profiled; half of a shorter epoch's
MARK = "study.mark"  # the name of the operations by which the profiler's clock is read
LOST = "the profiler lost the marks of its clock"
Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Found:
    """What a profiler saw, by its own clock (ns). marks: begins of the operations `MARK`, in their order."""

    library: str
    device: str
    operations: Sequence[Operation]
    marks: Sequence[int]
    unseen: str = ""


class Profiler(Protocol):
    """A framework's profiler."""

    def start(self) -> None:
        """Start, after all work that was queued is done."""

    def mark(self) -> None:
        """Note an operation named `MARK`, as short as possible."""

    def synchronize(self) -> None:
        """Wait until all work that was queued is done."""

    def stop(self) -> None:
        """Stop."""

    def found(self) -> Found:
        """What it saw."""


class Window:
    """Steps of one epoch, the second one if there are several: the first builds graphs and chooses algorithms.

    Args:
        profiler: that is started and stopped.
        steps: of an epoch.
        epochs: of the run.
    """

    def __init__(self, profiler: Profiler, steps: int, epochs: int) -> None:
        self._profiler = profiler
        self._epoch = min(1, epochs - 1)
        self._first = min(WARM_UP, steps // 2)
        self._number = min(MOST_STEPS, steps - self._first)
        self._at_epoch, self._step = -1, 0
        self._begun: int | None = None  # of the step that is being profiled
        self._steps: list[Span] = []
        self._waits: list[Span] = []
        self._marks: list[Span] = []  # monotonic ns before and after each

    def begin_epoch(self, epoch: int) -> None:
        """Before the first step of an epoch, from 0."""
        self._at_epoch, self._step = epoch, 0

    def begin_step(self) -> None:
        """Before the batch of the next step is asked for, which ends the one before."""
        self._end_step()
        if self._at_epoch == self._epoch and self._step == self._first:
            self._profiler.start()
            self._begin()
        elif self._steps and len(self._steps) < self._number and self._at_epoch == self._epoch:
            self._begin()
        self._step += 1

    def _begin(self) -> None:
        self._mark()
        self._begun = self._steps[-1][1] if self._steps else self._marks[-1][0]

    def end_steps(self) -> None:
        """After the last step of an epoch."""
        self._end_step()

    def input_ready(self, asked_ns: int) -> None:
        """When a batch has come. asked_ns: when it was asked for."""
        if self._begun is not None:
            self._waits.append((asked_ns, time.monotonic_ns()))

    def measured(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of an epoch; what is done with one until the next is asked for is a step."""
        source = iter(batches)
        while True:
            self.begin_step()
            asked = time.monotonic_ns()
            batch = next(source, None)
            if batch is None:
                self._begun = None
                return
            self.input_ready(asked)
            yield batch

    def _mark(self) -> None:
        before = time.monotonic_ns()
        self._profiler.mark()
        self._marks.append((before, time.monotonic_ns()))

    def _end_step(self) -> None:
        if self._begun is None:
            return
        is_last = len(self._steps) + 1 == self._number
        if is_last:
            self._profiler.synchronize()
        self._steps.append((self._begun, time.monotonic_ns()))
        self._begun = None
        if is_last:
            self._profiler.stop()

    def profile(self) -> Profile:
        """The profile, when training is over.

        Raises:
            StudyError: training ended before the steps that are profiled.
        """
        if len(self._steps) < self._number:
            raise StudyError("profile: operations: training ended before the steps that are profiled")
        found = self._profiler.found()
        offset, error = clock_offset(self._marks, found.marks)
        operations = sorted(
            (_moved(each, offset) for each in found.operations), key=lambda each: (each.begin_ns, -each.end_ns)
        )
        return Profile(
            found.library, found.device, tuple(self._steps), tuple(self._waits), tuple(operations), found.unseen, error
        )


def clock_offset(marked: Sequence[Span], seen: Sequence[int]) -> tuple[int, int]:
    """(profiler's clock - monotonic clock, by how much that may be wrong), ns.

    Each mark was noted between two readings of the monotonic clock; the closest pair says most.
    """
    if len(marked) != len(seen) or not seen:
        raise StudyError(f"profile: operations: {LOST} ({len(seen)} of {len(marked)}); run again")
    (before, after), at = min(zip(marked, seen, strict=True), key=lambda pair: pair[0][1] - pair[0][0])
    return at - (before + after) // 2, (after - before + 1) // 2


def _moved(operation: Operation, offset_ns: int) -> Operation:
    begin, end = operation.begin_ns - offset_ns, operation.end_ns - offset_ns
    return Operation(operation.name, operation.kind, operation.lane, begin, end, operation.scope)
