"""The phases of a run, and the log of their edges.

One JSON object a line: phase, edge (``begin`` or ``end``), rank, host, ``wall_ns`` (since 1970) and
``monotonic_ns`` (comparable on one host only).
"""

import contextlib
import json
import time
from pathlib import Path

from study.core.files import write_text

PHASES = ("startup", "load", "preprocess", "broadcast", "train", "evaluate")
# Parts of a phase, which are in its time too: copying or broadcasting the files, and waiting for that, in load; copying
# checkpoints, and waiting for the last one, in train.
PARTS = ("stage", "checkpoint")
# Who is in an earlier one keeps the others waiting: in load who reads for them, in checkpoint rank 0.
ORDER = ("startup", "load", "stage", "preprocess", "broadcast", "checkpoint", "train", "evaluate")


def now():
    """The present as (wall, monotonic) nanoseconds."""
    return time.time_ns(), time.monotonic_ns()


class PhaseLog:
    """Logs the edges of one rank's phases, each flushed at once, so that a kill leaves what came before."""

    def __init__(self, path, rank, host):
        self._path, self._rank, self._host = Path(path), rank, host
        self._open = []
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def edge(self, phase, edge, at=None):
        """Log one edge, now or ``at`` an earlier (wall, monotonic) time."""
        self._open.append(phase) if edge == "begin" else self._open.remove(phase)
        wall, monotonic = at or now()
        line = {
            "phase": phase,
            "edge": edge,
            "rank": self._rank,
            "host": self._host,
            "wall_ns": wall,
            "monotonic_ns": monotonic,
        }
        with open(self._path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")

    @property
    def current(self):
        """The phase that this rank is in, the innermost; None between two."""
        return self._open[-1] if self._open else None

    @contextlib.contextmanager
    def __call__(self, phase):
        """Log both edges around a block; an error in the block leaves the phase without its end."""
        self.edge(phase, "begin")
        yield
        self.edge(phase, "end")


def merge(rank_files, path):
    """Join the ranks' logs, ordered by wall time, into ``path``; a last line cut off by a kill is left out."""
    edges = [edge for file in rank_files for edge in read(file)]
    edges.sort(key=lambda edge: edge["wall_ns"])
    write_text(path, "".join(json.dumps(edge) + "\n" for edge in edges))


def read(path):
    """The edges in a log, in its order; lines that are not whole are left out."""
    edges = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            edges.append(json.loads(line))
    return edges


def durations(edges):
    """Seconds of each finished phase by rank, {phase: {rank: seconds}}, by the monotonic clock; of several the sum."""
    begun, result = {}, {}
    for edge in sorted(edges, key=lambda edge: edge["monotonic_ns"]):
        key = edge["phase"], edge["rank"]
        if edge["edge"] == "begin":
            begun[key] = edge["monotonic_ns"]
        elif key in begun:
            of_phase = result.setdefault(edge["phase"], {})
            seconds = (edge["monotonic_ns"] - begun.pop(key)) / 1e9
            of_phase[edge["rank"]] = of_phase.get(edge["rank"], 0.0) + seconds
    return result


def furthest_behind(edges):
    """Where the rank is that others would wait for: (phase, rank) of the innermost open phase that comes first.

    (None, None) where no phase is open.
    """
    open_phases = {}
    for edge in sorted(edges, key=lambda edge: edge["wall_ns"]):
        stack = open_phases.setdefault(edge["rank"], [])
        if edge["edge"] == "begin":
            stack.append((edge["wall_ns"], edge["phase"]))
        else:
            stack[:] = [each for each in stack if each[1] != edge["phase"]]
    innermost = [(ORDER.index(stack[-1][1]), stack[-1][0], rank) for rank, stack in open_phases.items() if stack]
    if not innermost:
        return None, None
    phase, _, rank = min(innermost)
    return ORDER[phase], rank


def last(edges):
    """Where a log ends: (phase, rank) of the latest begun and not ended, else ``after <phase>``, or (None, None)."""
    open_edges, latest = {}, (None, None)
    for edge in sorted(edges, key=lambda edge: edge["wall_ns"]):
        key = edge["phase"], edge["rank"]
        if edge["edge"] == "begin":
            open_edges[key] = edge["wall_ns"]
        else:
            open_edges.pop(key, None)
            latest = f"after {key[0]}", key[1]
    return max(open_edges, key=open_edges.get) if open_edges else latest
