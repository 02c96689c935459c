"""The phases of a run, and the log of their begins and ends (edges).

One JSON object per line: phase, edge (``begin`` or ``end``), rank, host, ``wall_ns`` (since 1970) and ``monotonic_ns``
(comparable on one host only).
"""

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from study.core.errors import StudyError
from study.core.files import AnyPath, name_file_in_errors, parse_json, write_text

PHASES = ("startup", "load", "preprocess", "broadcast", "train", "evaluate")
# Parts of a phase, included in its time. stage, in load: copying or broadcasting the files, and waiting for it.
# checkpoint, in train: copying checkpoints, and waiting for the last one.
# program, of a command: from the start of the user's program to its end, over the phases that it tells.
PROGRAM = "program"
PARTS = ("stage", "checkpoint", PROGRAM)
# A rank in an earlier phase keeps the others waiting: in load the rank that reads for them, in checkpoint rank 0.
KEYS = {"phase": str, "edge": str, "rank": int, "host": str, "wall_ns": int, "monotonic_ns": int}
STEP_NS = 1_000_000  # by less, the offset of two clocks that are read one after the other may differ by chance
CLOCK_S, CLOCK_SHARE = 1.0, 1e-3  # a clock that is only slowed or sped up is off by less: by 0.5 ms a second at most
ORDER = ("startup", "load", "stage", "preprocess", "broadcast", "checkpoint", "train", "evaluate",
         "program")  # fmt: skip


def now() -> tuple[int, int]:
    """The current time as (wall, monotonic) nanoseconds."""
    return time.time_ns(), time.monotonic_ns()


def measure_zero_ns() -> int:
    """When this machine's monotonic clock was 0, by its wall clock, to a microsecond; it changes when that one is set.

    It is one for all containers of a machine, also where they have boot ids of their own (LXC, systemd-nspawn).
    """
    readings = []
    for _ in range(10):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, wall - (before + after) // 2))
    return min(readings)[1]


class WallClock:
    """Whether the wall clock may be used for durations: TensorFlow's graphs have no other (``tf.timestamp``)."""

    def __init__(self) -> None:
        self._zero_ns = measure_zero_ns()

    def was_set(self) -> bool:
        """Whether it was set since the last call: then differences of its times are no durations."""
        before, self._zero_ns = self._zero_ns, measure_zero_ns()
        return abs(self._zero_ns - before) > STEP_NS


class PhaseLog:
    """Logs the edges of one rank's phases; each is flushed at once, so that a kill loses nothing written before."""

    def __init__(self, path: AnyPath, rank: int, host: str) -> None:
        self._path, self._rank, self._host = Path(path), rank, host
        self._open: list[str] = []
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def edge(self, phase: str, edge: str, at: tuple[int, int] | None = None) -> None:
        """Log one edge, now or ``at`` an earlier (wall, monotonic) time."""
        self._open.append(phase) if edge == "begin" else self._open.remove(phase)
        wall, monotonic = at or now()
        line = dict(zip(KEYS, (phase, edge, self._rank, self._host, wall, monotonic), strict=True))
        with name_file_in_errors(self._path), open(self._path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")

    @property
    def current(self) -> str | None:
        """The innermost phase that this rank is in; None between phases."""
        return self._open[-1] if self._open else None

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Log both edges around a block; if the block raises, the phase has no end."""
        self.edge(phase, "begin")
        yield
        self.edge(phase, "end")


def merge_logs(rank_files: Iterable[AnyPath], path: AnyPath, offsets: Mapping[str, int] | None = None) -> None:
    """Merge the ranks' logs, in their order (`sort_edges`), into ``path``; a last line truncated by a kill is left out.

    offsets: {host: nanoseconds by which its clock is ahead}; they are subtracted from the wall times.
    """
    edges = [edge for file in rank_files for edge in read_edges(file, is_merged=False)]
    for edge in edges:
        edge["wall_ns"] -= (offsets or {}).get(edge["host"], 0)
    write_text(path, "".join(json.dumps(edge) + "\n" for edge in sort_edges(edges)))


def collect_clock_offsets_ns(hosts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How far each host's clock is ahead of the launching host's, {host: ns}. hosts: as in ``provenance.json``."""
    return {host["hostname"]: round(host["clock_offset_s"] * 1e9) for host in hosts}


def compute_zeros_ns(edges: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """{host: wall time at which its monotonic clock was 0}, by its wall clock at its first edge.

    A moment of a host's monotonic clock plus this is a time that is common to all hosts, to the uncertainty of their
    clocks' offsets. A clock that is set later does not change it.
    """
    zeros: dict[str, int] = {}
    for edge in sorted(edges, key=lambda edge: edge["monotonic_ns"]):
        zeros.setdefault(edge["host"], edge["wall_ns"] - edge["monotonic_ns"])
    return zeros


def sort_edges(edges: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The edges in the order in which they happened: by the monotonic clocks, of which `compute_zeros_ns` makes one."""
    every = list(edges)
    zeros = compute_zeros_ns(every)
    return sorted(every, key=lambda edge: edge["monotonic_ns"] + zeros[edge["host"]])


def read_edges(path: AnyPath, is_merged: bool = True) -> list[dict[str, Any]]:
    """The edges in a log, in its order.

    is_merged: whether it is a run's log, which was written whole. In the log of a rank, which may have been killed
    while it wrote, incomplete lines are left out.

    Raises:
        StudyError: a line of a run's log is no edge.
    """
    edges = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        if edge := _parse_edge(line):
            edges.append(edge)
        elif is_merged:
            raise StudyError(f"{path}: line {number}: is no begin or end of a phase; restore it, or delete its folder "
                             "to run again")  # fmt: skip
    return edges


def _parse_edge(line: bytes) -> dict[str, Any] | None:
    """The edge in a line of a log; None if it is none."""
    try:
        edge = parse_json(line.decode())
    except (ValueError, RecursionError):
        return None
    whole = isinstance(edge, dict) and all(type(edge.get(name)) is kind for name, kind in KEYS.items())
    return edge if whole and edge["edge"] in ("begin", "end") else None


def compute_durations(edges: Iterable[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Seconds of each finished phase by rank, {phase: {rank: seconds}}, by the monotonic clock; repetitions add up."""
    begun: dict[tuple[str, int], int] = {}
    result: dict[str, dict[int, float]] = {}
    for edge in sorted(edges, key=lambda edge: edge["monotonic_ns"]):
        key = edge["phase"], edge["rank"]
        if edge["edge"] == "begin":
            begun[key] = edge["monotonic_ns"]
        elif key in begun:
            of_phase = result.setdefault(edge["phase"], {})
            seconds = (edge["monotonic_ns"] - begun.pop(key)) / 1e9
            of_phase[edge["rank"]] = of_phase.get(edge["rank"], 0.0) + seconds
    return result


def has_no_phases(times: Mapping[str, Any]) -> bool:
    """True if a program reported none of `PHASES`. times: of a run, by phase."""
    return PROGRAM in times and not times.keys() & set(PHASES)


def is_program_end(edge: Mapping[str, Any]) -> bool:
    """Whether its rank is in no phase afterwards: a program has ended, of which no phase may have an end."""
    return bool(edge["phase"] == PROGRAM and edge["edge"] == "end")


def find_furthest_behind(edges: Iterable[dict[str, Any]]) -> tuple[str | None, int | None]:
    """The rank that others wait for: (phase, rank) of the earliest phase, by `ORDER`, among the innermost open ones.

    (None, None) if no phase is open.
    """
    open_phases: dict[int, list[tuple[int, str]]] = {}
    for place, edge in enumerate(sort_edges(edges)):
        stack = open_phases.setdefault(edge["rank"], [])
        if edge["edge"] == "begin":
            stack.append((place, edge["phase"]))
        elif is_program_end(edge):
            stack.clear()
        else:
            stack[:] = [each for each in stack if each[1] != edge["phase"]]
    innermost = [(ORDER.index(stack[-1][1]), stack[-1][0], rank) for rank, stack in open_phases.items() if stack]
    if not innermost:
        return None, None
    phase, _, rank = min(innermost)
    return ORDER[phase], rank


def find_last_phase(edges: Iterable[dict[str, Any]]) -> tuple[str | None, int | None]:
    """End of a log: (phase, rank) of the latest open phase, else (``after <phase>``, rank), or (None, None)."""
    open_edges: dict[tuple[str, int], int] = {}
    latest: tuple[str | None, int | None] = (None, None)
    for place, edge in enumerate(sort_edges(edges)):
        key = edge["phase"], edge["rank"]
        if edge["edge"] == "begin":
            open_edges[key] = place
        else:
            for other in [each for each in open_edges if each == key or (is_program_end(edge) and each[1] == key[1])]:
                del open_edges[other]
            latest = f"after {key[0]}", key[1]
    return max(open_edges, key=lambda key: open_edges[key]) if open_edges else latest


def compute_launch_ns(
    edges: Iterable[Mapping[str, Any]], started_wall_ns: int, started: Mapping[str, Any] | None
) -> dict[str, int]:
    """{host: monotonic ns of that host at which the launcher started}.

    On the launching host it was measured; elsewhere it follows from `compute_zeros_ns`. edges: with wall times by the
    launching host's clock. started: ``host``, the launching one, and ``monotonic_ns``, its clock then; None of a lost
    batch job.
    """
    launches = {host: started_wall_ns - zero for host, zero in compute_zeros_ns(edges).items()}
    return launches | ({started["host"]: started["monotonic_ns"]} if started else {})


def find_set_clock(edges: Iterable[dict[str, Any]]) -> str | None:
    """Which host's clock was set during a run, ``n1's clock was set by -30.0 s during the run``; None if none was.

    Times by that clock are then wrong, such as the time at which an epoch ended.
    """
    first: dict[str, dict[str, Any]] = {}
    for edge in sorted(edges, key=lambda edge: edge["monotonic_ns"]):
        begin = first.setdefault(edge["host"], edge)
        wall_s, passed_s = ((edge[clock] - begin[clock]) / 1e9 for clock in ("wall_ns", "monotonic_ns"))
        if abs(wall_s - passed_s) > CLOCK_S + CLOCK_SHARE * passed_s:
            return f"{edge['host']}'s clock was set by {wall_s - passed_s:+.1f} s during the run"
    return None
