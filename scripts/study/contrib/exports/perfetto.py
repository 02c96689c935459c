"""A run as one trace for Perfetto: phases, epochs, operations, communication and power on one time axis.

The format is the JSON of Chrome's trace events, which Perfetto and chrome://tracing read: microseconds, ``X`` a slice,
``B`` and ``E`` its begin and end, ``C`` a counter, ``M`` a name. Times are those of the launching host's wall clock, as
far as the offsets of the hosts' clocks are known, counted from the first event.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from study.contrib.exports import kinds
from study.core import checked
from study.core.csv_files import FINITE, WHOLE, read_csv
from study.core.errors import StudyError
from study.core.files import AnyPath, written_aside
from study.core.wording import counted
from study.instruments import operations, phases, timeline
from study.instruments.power import telemetry
from study.instruments.timeline_events import Events

Event = dict[str, Any]
Edges = list[dict[str, Any]]
COMMUNICATION, POWER = 1_000_000, 2_000_000  # processes of the trace; ranks are 0, 1, 2, ...
OF_PHASES, OF_EPOCHS, OF_STEPS, OF_LANES = 0, 1, 2, 10  # threads of a rank
EPOCHS = {"begin_monotonic_ns": WHOLE, "time_s": FINITE, "epoch": WHOLE}  # columns of history.csv
LEAD_NS = 60 * 10**9
IN_A_PIECE = 5000  # events that are written at once


@dataclass
class Trace:
    """What was written. absent: {part: why it is not in the trace}."""

    events: int = 0
    absent: dict[str, str] = field(default_factory=dict)


@kinds.of_run("perfetto", title="each run on one time axis, for Perfetto and chrome://tracing", file="trace.json.gz")
def export(folder: Path, path: Path) -> kinds.Written:
    """Write the trace of a run; compressed if ``path`` ends with ``.gz``."""
    made = write(folder, path)
    return kinds.Written(f"{counted(made.events, 'event')}, {path.stat().st_size / 1e6:.1f} MB", made.absent)


def write(folder: AnyPath, path: AnyPath) -> Trace:
    """Write the trace of a run's directory, finished or not; compressed if ``path`` ends with ``.gz``.

    Raises:
        StudyError: the folder is no run's, or a file of the run is damaged.
    """
    folder, made = Path(folder), Trace()
    edges = edges_of_run(folder)
    if not edges:
        raise StudyError(f"{folder}: no rank has begun a phase, or this is no run's directory; give one with run.yaml")
    events = _all(folder, edges, made)
    opened: Callable[[Path], IO[bytes]] = _compressed if str(path).endswith(".gz") else _plain
    with written_aside(path) as aside, opened(aside) as file:
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [\n')
        piece: list[str] = []
        for event in events:
            piece.append(("" if made.events == 0 else ",\n") + json.dumps(event, allow_nan=False))
            made.events += 1
            if len(piece) == IN_A_PIECE:
                file.write("".join(piece).encode())
                piece.clear()
        rest = json.dumps({"run": str(folder), "absent": made.absent})
        file.write("".join(piece).encode() + f'\n], "otherData": {rest}}}\n'.encode())
    return made


def _plain(path: Path) -> IO[bytes]:
    return open(path, "wb")


def _compressed(path: Path) -> IO[bytes]:
    return gzip.GzipFile(path, "wb", compresslevel=6, mtime=0)  # type: ignore[return-value]  # it writes bytes


def edges_of_run(folder: Path) -> Edges:
    """Of the run's log, or of those of its ranks, while it goes on or after it was killed with its launch."""
    if (folder / "phases.jsonl").is_file():
        return phases.read_edges(folder / "phases.jsonl")
    found = [edge for path in sorted(folder.glob("ranks/phases-*.jsonl")) for edge in phases.read_edges(path, False)]
    offsets = phases.collect_clock_offsets_ns(_hosts(folder))
    for edge in found:
        edge["wall_ns"] -= offsets.get(edge["host"], 0)
    return found


def _hosts(folder: Path) -> list[dict[str, Any]]:
    path = folder / "provenance.json"
    return checked.load_json(path, "provenance").get("hosts", []) if path.is_file() else []


def _all(folder: Path, edges: Edges, made: Trace) -> Iterator[Event]:
    """The events of all parts. Those that a run lacks are told in ``made``."""
    axis = _Axis(edges)
    yield from _of_phases(edges, axis)
    parts: dict[str, tuple[str, Callable[[Path, _Axis], Iterable[Event]], str]] = {
        "epochs": ("history.csv", _of_epochs, "the run has no history: it failed, or is still running"),
        "operations": (operations.FILE, _of_operations, "the run has no profile: operations, or did not succeed"),
        "communication": (timeline.FILE, _of_timeline, "the run has no trace: true, or ended before it communicated"),
        "power": ("telemetry.csv", _of_power, "no sensor was read"),
    }
    for part, (name, events, why) in parts.items():
        if not (folder / name).is_file() or not (folder / name).stat().st_size:
            made.absent[part] = f"{name} is missing or empty: {why}"
            continue
        before = made.events
        yield from events(folder, axis)
        if made.events == before:
            made.absent[part] = f"{name} has nothing of it"


class _Axis:
    """Where a moment of a host's monotonic clock is on the trace's axis, in microseconds."""

    def __init__(self, edges: Edges) -> None:
        self.zeros_ns = phases.compute_zeros_ns(edges)
        self.first_host = min(edges, key=lambda edge: edge["rank"])["host"]
        first_ns = min(self.zeros_ns[edge["host"]] + edge["monotonic_ns"] for edge in edges)
        self._begin_ns = first_ns - LEAD_NS

    def of_wall(self, wall_ns: float) -> float:
        """wall_ns: by the launching host's clock."""
        return round((wall_ns - self._begin_ns) / 1000, 3)

    def of(self, host: str, monotonic_ns: float) -> float:
        """host: that has logged a phase."""
        return self.of_wall(self.zeros_ns[host] + monotonic_ns)


def _named(kind: str, name: str, process: int, thread: int = 0) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _slice(name: str, process: int, thread: int, begin: float, end: float, **arguments: Any) -> Event:
    found = {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": begin,
        "dur": round(max(0.0, end - begin), 3),
    }
    return {**found, "args": arguments} if arguments else found


def _of_phases(edges: Edges, axis: _Axis) -> Iterator[Event]:
    """A phase that has no end lasts until the last edge, and says so; but not one of a program that ended."""
    hosts = {edge["rank"]: edge["host"] for edge in edges}
    for rank, host in sorted(hosts.items()):
        yield _named("process_name", f"rank {rank} on {host}", rank)
        yield _named("thread_name", "phases", rank, OF_PHASES)
    last = max(axis.of(edge["host"], edge["monotonic_ns"]) for edge in edges)
    begun: dict[tuple[int, str], list[float]] = {}
    for edge in edges:
        moment, key = axis.of(edge["host"], edge["monotonic_ns"]), (edge["rank"], edge["phase"])
        if edge["edge"] == "begin":
            begun.setdefault(key, []).append(moment)
        elif begun.get(key):
            yield _slice(edge["phase"], edge["rank"], OF_PHASES, begun[key].pop(), moment)
        if phases.is_program_end(edge):
            begun = {each: moments for each, moments in begun.items() if each[0] != edge["rank"]}
    for (rank, phase), moments in begun.items():
        for begin in moments:
            yield _slice(f"{phase} (no end)", rank, OF_PHASES, begin, last)


def _of_epochs(folder: Path, axis: _Axis) -> Iterator[Event]:
    """By the monotonic clock of rank 0's host; rank 0 tells its epochs."""
    found = read_csv(folder / "history.csv", EPOCHS)
    if found.empty:
        return  # a program that tells no epochs
    yield _named("thread_name", "epochs", 0, OF_EPOCHS)
    for row in found.to_dict("records"):
        begin = axis.of(axis.first_host, row["begin_monotonic_ns"])
        yield _slice(f"epoch {row['epoch']}", 0, OF_EPOCHS, begin, begin + row["time_s"] * 1e6)


def _of_operations(folder: Path, axis: _Axis) -> Iterator[Event]:
    found = operations.read_profile(folder / operations.FILE)
    yield _named("thread_name", "profiled steps", 0, OF_STEPS)
    for number, (begin, end) in enumerate(found.steps, 1):
        yield _slice(f"step {number}", 0, OF_STEPS, axis.of(axis.first_host, begin), axis.of(axis.first_host, end))
    lanes = {lane: OF_LANES + place for place, lane in enumerate(dict.fromkeys(e.lane for e in found.operations))}
    for lane, thread in lanes.items():
        yield _named("thread_name", lane, 0, thread)
    for each in found.operations:
        told = {name: value for name, value in (("kind", each.kind), ("scope", each.scope)) if value}
        since, until = axis.of(axis.first_host, each.begin_ns), axis.of(axis.first_host, each.end_ns)
        yield _slice(each.name, 0, lanes[each.lane], since, until, **told)


def _of_timeline(folder: Path, axis: _Axis) -> Iterator[Event]:
    """The events of Horovod's timeline, or of ours in its format: its process is a tensor, here a thread."""
    hosts, shift = _hosts(folder), float("nan")  # until the timeline tells when it began
    offset_ns = round(hosts[0]["clock_offset_s"] * 1e9) if hosts else 0
    yield _named("process_name", "communication, as rank 0 saw it", COMMUNICATION)
    for event in Events(folder / timeline.FILE):
        told, tensor = event.get("args"), event.get("pid")
        told = told if isinstance(told, dict) else {}
        if isinstance(start := told.get("start_time_since_epoch_in_micros"), int | float):
            shift = axis.of_wall(start * 1000 - offset_ns)
        if event.get("ph") == "M" and event.get("name") == "process_name" and isinstance(tensor, int):
            yield _named("thread_name", str(told.get("name")), COMMUNICATION, tensor)
        elif event.get("ph") in ("B", "E", "X") and np.isfinite(shift) and isinstance(tensor, int) and _is_time(event):
            yield _moved(event, tensor, round(event["ts"] + shift, 3))


def _is_time(event: Event) -> bool:
    return isinstance(moment := event.get("ts"), int | float) and bool(np.isfinite(moment))


def _moved(event: Event, tensor: int, moment: float) -> Event:
    found: Event = {"ph": event["ph"], "pid": COMMUNICATION, "tid": tensor, "ts": moment}
    if event["ph"] == "X":  # of Horovod, a rank that is ready
        return {**found, "name": f"rank {event.get('name')} ready", "dur": 0}
    return {**found, "name": str(event["name"])} if "name" in event else found


def _of_power(folder: Path, axis: _Axis) -> Iterator[Event]:
    """Power of each device; where a sensor has only a counter, the mean power between its readings."""
    path = folder / "telemetry.csv"
    readings = telemetry.read_telemetry_frame(path)
    first = readings.groupby("host")[["wall_ns", "monotonic_ns"]].first()
    zeros = {host: int(row["wall_ns"] - row["monotonic_ns"]) for host, row in first.iterrows()} | axis.zeros_ns
    processes = {host: POWER + place for place, host in enumerate(dict.fromkeys(readings["host"]))}
    for host, process in processes.items():
        yield _named("process_name", f"power of {host}", process)
    for each in telemetry.read_series(path):
        seconds, watts = each.select_readings(each.power_w)
        name = f"{each.sensor} {each.name} W"
        if not len(seconds):
            at, joules = each.select_readings(each.energy_j)
            steps = np.diff(at)
            seconds, watts = at[1:][steps > 0], np.diff(joules)[steps > 0] / steps[steps > 0]
            name += ", mean since the last reading"
        for second, power in zip(seconds.tolist(), watts.tolist(), strict=True):
            moment = axis.of_wall(zeros[each.host] + round(second * 1e9))
            yield {"ph": "C", "name": name, "pid": processes[each.host], "ts": moment, "args": {"W": round(power, 3)}}
