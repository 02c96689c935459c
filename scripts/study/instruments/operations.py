"""The profile of one rank's operations in a few training steps: which steps are profiled, and the profile's file.

Times are of the monotonic clock of the rank's host, as in ``phases.jsonl``. A framework's profiler has a clock of its
own, which is read by marks.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from study.core.errors import StudyError
from study.core.files import AnyPath, parse_json, write_aside

FILE = "operations.json.gz"
MOST_OPERATIONS = 100_000  # in a file: about 1 MB
LONGEST_NAME = 200  # characters; names of CUDA kernels have thousands
# What an operation does. OTHER: work beside the training step, such as making the next batch.
COMPUTE, COPIES, COMMUNICATION, INPUT_WAIT, OTHER = "compute", "copies", "communication", "input_wait", "other"
KINDS = (COMPUTE, COPIES, COMMUNICATION, INPUT_WAIT, OTHER)
DEVICES = ("cpu", "gpu")
Span = tuple[int, int]  # begin and end, ns

MOST_STEPS = 20
WARM_UP = 5  # steps of the epoch before the first one that is profiled; half of a shorter epoch's
MARK = "study.mark"  # the name of the operations by which the profiler's clock is read
LOST = "the profiler lost the marks of its clock"
Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that ran.

    Args:
        name: of the operator or kernel, such as ``aten::mm``.
        kind: one of `KINDS`; empty for one that only contains others, whose own time is nobody's.
        lane: thread or stream; operations of one lane are nested or follow one another.
        begin_ns, end_ns: when it ran.
        scope: where it is in the model, if the framework tells.
    """

    name: str
    kind: str
    lane: str
    begin_ns: int
    end_ns: int
    scope: str = ""


@dataclass(frozen=True)
class Profile:
    """Operations of some training steps that followed one another.

    Args:
        library: the profiler, with its version.
        device: ``gpu`` if the operations are kernels and copies of a GPU, ``cpu`` if they are of the host.
        steps: from asking for the step's batch to asking for the next one.
        input_waits: for the steps' batches, where they are no operations.
        operations: in the order of their begins.
        unseen: why communication is not among the operations of the host; empty if it would be.
        clock_error_ns: by how much times of the profiler and of the steps may differ.
        dropped: operations that are left out for the file's size.
    """

    library: str
    device: str
    steps: tuple[Span, ...]
    input_waits: tuple[Span, ...]
    operations: tuple[Operation, ...]
    unseen: str = ""
    clock_error_ns: int = 0
    dropped: int = 0

    def limit_operations(self, most: int = MOST_OPERATIONS) -> Profile:
        """The same with at most so many operations: of fewer steps, or of one step its longest ones."""
        steps, operations = self.steps, self._within(self.steps)
        while len(operations) > most and len(steps) > 1:
            steps = steps[: max(1, len(steps) * most // len(operations))] if len(steps) > 2 else steps[:1]
            operations = self._within(steps)
        longest = sorted(operations, key=lambda each: each.begin_ns - each.end_ns)[:most]
        chosen = tuple(sorted(longest, key=lambda each: (each.begin_ns, -each.end_ns)))
        waits = tuple(each for each in self.input_waits if each[0] < steps[-1][1])
        dropped = len(operations) - len(chosen)
        return dataclasses.replace(self, steps=steps, input_waits=waits, operations=chosen, dropped=dropped)

    def _within(self, steps: Sequence[Span]) -> list[Operation]:
        first, last = steps[0][0], steps[-1][1]
        return [each for each in self.operations if each.end_ns > first and each.begin_ns < last]


def write_profile(path: AnyPath, profile: Profile) -> None:
    """Write a profile, whole or not at all. Times are stored since the first step's begin."""
    limited = profile.limit_operations()
    zero = limited.steps[0][0]
    names: dict[tuple[str, str, str], int] = {}
    lanes: dict[str, int] = {}
    rows = []
    for each in limited.operations:
        name = names.setdefault((each.name[:LONGEST_NAME], each.kind, each.scope[:LONGEST_NAME]), len(names))
        lane = lanes.setdefault(each.lane, len(lanes))
        rows.append([name, lane, each.begin_ns - zero, each.end_ns - each.begin_ns])
    content = {
        "library": limited.library,
        "device": limited.device,
        "unseen": limited.unseen,
        "clock_error_ns": limited.clock_error_ns,
        "dropped": limited.dropped,
        "zero_monotonic_ns": zero,
        "steps": [_subtract_zero(zero, each) for each in limited.steps],
        "input_waits": [_subtract_zero(zero, each) for each in limited.input_waits],
        "names": list(names),
        "lanes": list(lanes),
        "operations": rows,
    }
    text = json.dumps(content, separators=(",", ":"))
    with write_aside(path) as aside:
        aside.write_bytes(gzip.compress(text.encode(), compresslevel=6, mtime=0))


def _subtract_zero(zero: int, span: Span) -> list[int]:
    return [span[0] - zero, span[1] - zero]


def read_profile(path: AnyPath) -> Profile:
    """The profile in a file.

    Raises:
        StudyError: the file is missing, damaged or no profile.
    """
    try:
        with gzip.open(path) as handle:
            return _to_profile(parse_json(handle.read().decode()))
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise StudyError(
            f"{path}: is not a complete profile of operations ({error}); restore it, or delete its folder to run again"
        ) from None


def _to_profile(content: dict[str, Any]) -> Profile:
    zero = _check_integer(content["zero_monotonic_ns"])
    names, lanes = [_check_name(*each) for each in content["names"]], [str(each) for each in content["lanes"]]
    steps = tuple(_check_span(zero, *each) for each in content["steps"])
    if not steps or content["device"] not in DEVICES:
        raise ValueError("it has no step or no known device")
    operations = []
    for name, lane, begin, length in content["operations"]:
        at, end = _check_span(zero, begin, _check_integer(begin) + _check_integer(length))
        operator, kind, scope = names[_check_place(name)]
        operations.append(Operation(operator, kind, lanes[_check_place(lane)], at, end, scope))
    waits = tuple(_check_span(zero, *each) for each in content["input_waits"])
    clock_error_ns, dropped = _check_integer(content["clock_error_ns"]), _check_integer(content["dropped"])
    return Profile(
        str(content["library"]), content["device"], steps, waits, tuple(operations), str(content["unseen"]),
        clock_error_ns, dropped,
    )  # fmt: skip


def _check_name(name: str, kind: str, scope: str) -> tuple[str, str, str]:
    if kind not in (*KINDS, ""):
        raise ValueError(f"an operation is of kind {kind!r}")
    return str(name), kind, str(scope)


def _check_span(zero: int, begin: Any, end: Any) -> Span:
    if _check_integer(end) < _check_integer(begin):
        raise ValueError("an operation ends before it begins")
    return zero + begin, zero + end


def _check_place(value: Any) -> int:
    if _check_integer(value) < 0:
        raise ValueError(f"{value} is no place in a list")
    return int(value)


def _check_integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no integer")
    return value


@dataclass(frozen=True)
class Recording:
    """Operations that a profiler recorded, by its own clock (ns). marks: begins of the operations `MARK`, in order."""

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

    def collect(self) -> Recording:
        """Return what it recorded."""


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
        """Note that an epoch, counted from 0, begins."""
        self._at_epoch, self._step = epoch, 0

    def begin_step(self) -> None:
        """Note that the next step's batch is about to be requested, which ends the step before."""
        self.end_step()
        if self._at_epoch == self._epoch and self._step == self._first:
            self._profiler.start()
            self._begin()
        elif self._steps and len(self._steps) < self._number and self._at_epoch == self._epoch:
            self._begin()
        self._step += 1

    def _begin(self) -> None:
        self._mark()
        self._begun = self._steps[-1][1] if self._steps else self._marks[-1][0]

    def input_ready(self, asked_ns: int) -> None:
        """Note that a batch has come. asked_ns: when it was requested."""
        if self._begun is not None:
            self._waits.append((asked_ns, time.monotonic_ns()))

    def measure_steps(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of an epoch; what is done with one until the next is asked for is a step."""
        source = iter(batches)
        while True:
            self.begin_step()
            asked_ns = time.monotonic_ns()
            batch = next(source, None)
            if batch is None:
                self._begun = None
                return
            self.input_ready(asked_ns)
            yield batch

    def _mark(self) -> None:
        before = time.monotonic_ns()
        self._profiler.mark()
        self._marks.append((before, time.monotonic_ns()))

    def end_step(self) -> None:
        """Note that a step has ended: the next one begins, or the epoch is over."""
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
        result = self._profiler.collect()
        offset, error = compute_clock_offset(self._marks, result.marks)
        operations = sorted(
            (_shift_operation(each, offset) for each in result.operations),
            key=lambda each: (each.begin_ns, -each.end_ns),
        )
        return Profile(
            result.library,
            result.device,
            tuple(self._steps),
            tuple(self._waits),
            tuple(operations),
            result.unseen,
            error,
        )


def compute_clock_offset(marked: Sequence[Span], seen: Sequence[int]) -> tuple[int, int]:
    """(profiler's clock - monotonic clock, uncertainty of that), ns.

    Each mark was noted between two readings of the monotonic clock; the closest pair says most.
    """
    if len(marked) != len(seen) or not seen:
        raise StudyError(f"profile: operations: {LOST} ({len(seen)} of {len(marked)}); run again")
    (before, after), at = min(zip(marked, seen, strict=True), key=lambda pair: pair[0][1] - pair[0][0])
    return at - (before + after) // 2, (after - before + 1) // 2


def _shift_operation(operation: Operation, offset_ns: int) -> Operation:
    begin, end = operation.begin_ns - offset_ns, operation.end_ns - offset_ns
    return Operation(operation.name, operation.kind, operation.lane, begin, end, operation.scope)
