"""The profile of one rank's operations in a few training steps, and its file.

Times are of the monotonic clock of the rank's host, as in ``phases.jsonl``.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from study.core.errors import StudyError
from study.core.files import AnyPath, parsed_json, written_aside

FILE = "operations.json.gz"
MOST_OPERATIONS = 100_000  # in a file: about 1 MB
LONGEST_NAME = 200  # characters; names of CUDA kernels have thousands
# What an operation does. OTHER: work beside the training step, such as making the next batch.
COMPUTE, COPIES, COMMUNICATION, INPUT_WAIT, OTHER = "compute", "copies", "communication", "input_wait", "other"
KINDS = (COMPUTE, COPIES, COMMUNICATION, INPUT_WAIT, OTHER)
DEVICES = ("cpu", "gpu")
Span = tuple[int, int]  # begin and end, ns


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

    def bounded(self, most: int = MOST_OPERATIONS) -> Profile:
        """The same with at most so many operations: of fewer steps, or of one step its longest ones."""
        steps, kept = self.steps, self._within(self.steps)
        while len(kept) > most and len(steps) > 1:
            steps = steps[: max(1, len(steps) * most // len(kept))] if len(steps) > 2 else steps[:1]
            kept = self._within(steps)
        longest = sorted(kept, key=lambda each: each.begin_ns - each.end_ns)[:most]
        chosen = tuple(sorted(longest, key=lambda each: (each.begin_ns, -each.end_ns)))
        waits = tuple(each for each in self.input_waits if each[0] < steps[-1][1])
        dropped = len(kept) - len(chosen)
        return dataclasses.replace(self, steps=steps, input_waits=waits, operations=chosen, dropped=dropped)

    def _within(self, steps: Sequence[Span]) -> list[Operation]:
        first, last = steps[0][0], steps[-1][1]
        return [each for each in self.operations if each.end_ns > first and each.begin_ns < last]


def write(path: AnyPath, profile: Profile) -> None:
    """Write a profile, whole or not at all. Times are stored since the first step's begin."""
    kept = profile.bounded()
    zero = kept.steps[0][0]
    names: dict[tuple[str, str, str], int] = {}
    lanes: dict[str, int] = {}
    rows = []
    for each in kept.operations:
        name = names.setdefault((each.name[:LONGEST_NAME], each.kind, each.scope[:LONGEST_NAME]), len(names))
        lane = lanes.setdefault(each.lane, len(lanes))
        rows.append([name, lane, each.begin_ns - zero, each.end_ns - each.begin_ns])
    content = {
        "library": kept.library,
        "device": kept.device,
        "unseen": kept.unseen,
        "clock_error_ns": kept.clock_error_ns,
        "dropped": kept.dropped,
        "zero_monotonic_ns": zero,
        "steps": [_since(zero, each) for each in kept.steps],
        "input_waits": [_since(zero, each) for each in kept.input_waits],
        "names": list(names),
        "lanes": list(lanes),
        "operations": rows,
    }
    text = json.dumps(content, separators=(",", ":"))
    with written_aside(path) as aside:
        aside.write_bytes(gzip.compress(text.encode(), compresslevel=6, mtime=0))


def _since(zero: int, span: Span) -> list[int]:
    return [span[0] - zero, span[1] - zero]


def read(path: AnyPath) -> Profile:
    """The profile in a file.

    Raises:
        StudyError: the file is missing, damaged or no profile.
    """
    try:
        with gzip.open(path) as handle:
            return _profile(parsed_json(handle.read().decode()))
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise StudyError(
            f"{path}: is not a complete profile of operations ({error}); restore it, or delete its folder to run again"
        ) from None


def _profile(content: dict[str, Any]) -> Profile:
    zero = _whole(content["zero_monotonic_ns"])
    names, lanes = [_name(*each) for each in content["names"]], [str(each) for each in content["lanes"]]
    steps = tuple(_span(zero, *each) for each in content["steps"])
    if not steps or content["device"] not in DEVICES:
        raise ValueError("it has no step or no known device")
    operations = []
    for name, lane, begin, length in content["operations"]:
        at, end = _span(zero, begin, _whole(begin) + _whole(length))
        operator, kind, scope = names[_place(name)]
        operations.append(Operation(operator, kind, lanes[_place(lane)], at, end, scope))
    return Profile(
        str(content["library"]), content["device"], steps, tuple(_span(zero, *each) for each in content["input_waits"]),
        tuple(operations), str(content["unseen"]), _whole(content["clock_error_ns"]), _whole(content["dropped"]),
    )  # fmt: skip


def _name(name: str, kind: str, scope: str) -> tuple[str, str, str]:
    if kind not in (*KINDS, ""):
        raise ValueError(f"an operation is of kind {kind!r}")
    return str(name), kind, str(scope)


def _span(zero: int, begin: Any, end: Any) -> Span:
    if _whole(end) < _whole(begin):
        raise ValueError("an operation ends before it begins")
    return zero + begin, zero + end


def _place(value: Any) -> int:
    if _whole(value) < 0:
        raise ValueError(f"{value} is no place in a list")
    return int(value)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no integer")
    return value
