"""Time by operation: disjoint shares of a training step, and the operations that took most time.

A moment counts once, for the first that applies: compute, copies, communication, input wait; else it is idle. So
communication and copies are what computation does not hide, and the five add up to the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core.files import AnyPath
from study.instruments.operations import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    INPUT_WAIT,
    OTHER,
    Operation,
    Profile,
    Span,
    read_profile,
)

ORDER = (COMPUTE, COPIES, COMMUNICATION, INPUT_WAIT)
TOP = 15  # operations that a record keeps
LARGEST = 3  # of them, in one text
NONE_SENT = "no communication ran in the profiled steps"


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of an operation in which none of those within it ran."""

    operation: Operation
    begin_ns: int
    end_ns: int


def summarize_file(path: AnyPath) -> dict[str, Any]:
    """The record's ``operations``, from the file of a profile; times in seconds per step."""
    return summarize_profile(read_profile(path))


def summarize_profile(profile: Profile) -> dict[str, Any]:
    """The same of a profile."""
    window = profile.steps[0][0], profile.steps[-1][1]
    number = len(profile.steps)
    segments = list(clip_segments(split_into_own_segments(profile.operations), window))
    shares, sent_ns, hidden_ns = _compute_shares(segments, profile.input_waits, window)
    seconds: dict[str, float | None] = {f"{kind}_s": ns / 1e9 / number for kind, ns in shares.items()}
    unseen = "" if sent_ns else profile.unseen  # on a GPU, what another library sends is seen too
    if unseen:
        seconds[f"{COMMUNICATION}_s"] = None
    reason = unseen or (None if sent_ns else NONE_SENT)
    top = list_top_operations(segments, profile.operations, window, number)
    return {
        "library": profile.library,
        "device": profile.device,
        "steps": number,
        "step_s": (window[1] - window[0]) / 1e9 / number,
        **seconds,
        "communication_all_s": None if unseen else sent_ns / 1e9 / number,
        "communication_hidden": None if reason else hidden_ns / sent_ns,
        "communication_reason": reason,
        "largest": ", ".join(f"{each['operation']} {each['own_s'] * 1e3:.3g} ms" for each in top[:LARGEST]) or None,
        "clock_error_s": profile.clock_error_ns / 1e9,
        "dropped": profile.dropped,
        "top": top,
    }


def split_into_own_segments(operations: Iterable[Operation]) -> Iterator[Segment]:
    """The parts of each operation in which it is the innermost one of its lane."""
    lanes: dict[str, list[Operation]] = defaultdict(list)
    for each in operations:
        lanes[each.lane].append(each)
    for lane in lanes.values():
        yield from _split_lane(sorted(lane, key=lambda each: (each.begin_ns, -each.end_ns)))


def _split_lane(lane: list[Operation]) -> Iterator[Segment]:
    open_ones: list[Operation] = []
    at = 0
    for each in (*lane, None):
        while open_ones and (each is None or open_ones[-1].end_ns <= each.begin_ns):
            ended = open_ones.pop()
            if ended.end_ns > at:
                yield Segment(ended, at, ended.end_ns)
                at = ended.end_ns
        if each is None:
            return
        if open_ones and each.begin_ns > at:
            yield Segment(open_ones[-1], at, each.begin_ns)
        at = max(at, each.begin_ns)
        open_ones.append(each)


def clip_segments(segments: Iterable[Segment], window: Span) -> Iterator[Segment]:
    """The parts of the segments that lie in a window."""
    for each in segments:
        begin, end = max(each.begin_ns, window[0]), min(each.end_ns, window[1])
        if end > begin:
            yield Segment(each.operation, begin, end)


def _compute_shares(segments: list[Segment], waits: Iterable[Span], window: Span) -> tuple[dict[str, int], int, int]:
    """Nanoseconds of the window by kind, those with any communication, and of them those that computation hides."""
    spans: dict[str, list[Span]] = {kind: [] for kind in ORDER}
    for each in segments:
        if each.operation.kind in spans:
            spans[each.operation.kind].append((each.begin_ns, each.end_ns))
    spans[INPUT_WAIT] += [(max(b, window[0]), min(e, window[1])) for b, e in waits if e > window[0] and b < window[1]]
    edges = np.unique(
        np.array([*window, *(edge for each in spans.values() for span in each for edge in span)], np.int64)
    )
    length = np.diff(edges)
    covered = {kind: _find_covered(each, edges) for kind, each in spans.items()}
    is_free = np.ones(len(length), bool)
    shares: dict[str, int] = {}
    for kind in ORDER:
        shares[kind] = int(length[is_free & covered[kind]].sum())
        is_free &= ~covered[kind]
    shares["idle"] = int(length[is_free].sum())
    sent = covered[COMMUNICATION]
    return shares, int(length[sent].sum()), int(length[sent & covered[COMPUTE]].sum())


def _find_covered(spans: list[Span], edges: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether some span covers each interval between two edges."""
    change = np.zeros(len(edges), np.int64)
    if spans:
        begins, ends = (np.searchsorted(edges, np.array(each, np.int64)) for each in zip(*spans, strict=True))
        np.add.at(change, begins, 1)
        np.add.at(change, ends, -1)
    return np.cumsum(change)[:-1] > 0


def list_top_operations(
    segments: Iterable[Segment], operations: Iterable[Operation], window: Span, steps: int
) -> list[dict[str, Any]]:
    """The operations that took most time themselves, without those within them: seconds and calls per step.

    Operations of several lanes may run at the same time, so that their sum may exceed the step.
    """
    own_ns: dict[tuple[str, str], int] = defaultdict(int)
    for each in segments:
        if each.operation.kind:
            own_ns[each.operation.name, each.operation.kind] += each.end_ns - each.begin_ns
    calls: dict[tuple[str, str], int] = defaultdict(int)
    for operation in operations:
        if window[0] <= operation.begin_ns < window[1]:
            calls[operation.name, operation.kind] += 1
    longest = sorted(own_ns, key=lambda key: (key[1] == OTHER, -own_ns[key]))[:TOP]
    return [
        {
            "operation": name,
            "class": kind,
            "calls": calls[name, kind] / steps,
            "own_s": own_ns[name, kind] / 1e9 / steps,
        }
        for name, kind in longest
    ]
