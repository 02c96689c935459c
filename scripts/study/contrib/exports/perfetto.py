"""A run as one trace for Perfetto: phases, epochs, operations, communication and power on one time axis.

The format is the JSON of Chrome's trace events, which Perfetto and chrome://tracing read: microseconds, ``X`` a slice,
``B`` and ``E`` its begin and end, ``C`` a counter, ``M`` a name. Times are those of the launching host's wall clock, as
far as the offsets of the hosts' clocks are known, counted from the first event.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from study.core import validation
from study.core.csv_files import FINITE, WHOLE, read_csv
from study.core.errors import StudyError
from study.core.files import AnyPath, check_links_inside, write_aside
from study.instruments import phases, timeline
from study.instruments.power import telemetry
from study.instruments.timeline_events import Events

FILE = "trace.json.gz"
Event = dict[str, Any]
Edges = list[dict[str, Any]]
COMMUNICATION, POWER = 1_000_000, 2_000_000  # processes of the trace; ranks are 0, 1, 2, ...
PHASES_THREAD, EPOCHS_THREAD = 0, 1  # threads of a rank
EPOCHS = {"begin_monotonic_ns": WHOLE, "time_s": FINITE, "epoch": WHOLE}  # columns of history.csv
LEAD_NS = 60 * 10**9


@dataclass
class Trace:
    """The number of written events. absent: {part: why it is not in the trace}."""

    events: int = 0
    absent: dict[str, str] = field(default_factory=dict)


def write_trace(folder: AnyPath, path: AnyPath) -> Trace:
    """Write the trace of a run's directory, finished or not; compressed if ``path`` ends with ``.gz``.

    Raises:
        StudyError: the folder is no run's, or a file of the run is damaged.
    """
    folder, trace = Path(folder), Trace()
    check_links_inside(folder, folder)
    edges = read_run_edges(folder)
    if not edges:
        raise StudyError(f"{folder}: no rank has begun a phase, or this is no run's directory; give one with run.yaml")
    with write_aside(path) as aside, _open(aside, str(path).endswith(".gz")) as file:
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [\n')
        for event in _make_events(folder, edges, trace):
            file.write((",\n" * bool(trace.events) + json.dumps(event, allow_nan=False)).encode())
            trace.events += 1
        other_data = json.dumps({"run": str(folder), "absent": trace.absent})
        file.write(f'\n], "otherData": {other_data}}}\n'.encode())
    return trace


def _open(path: Path, is_compressed: bool) -> IO[bytes]:
    """Open a file for writing; a compressed one without its time, so that equal traces are equal files."""
    if not is_compressed:
        return open(path, "wb")
    return io.BufferedWriter(gzip.GzipFile(path, "wb", compresslevel=6, mtime=0), 1 << 20)


def read_run_edges(folder: Path) -> Edges:
    """Read the edges of phases from the run's log, or from its ranks' while it runs or if its launch was killed."""
    if (folder / "phases.jsonl").is_file():
        return phases.read_edges(folder / "phases.jsonl")
    edges = [edge for path in sorted(folder.glob("ranks/phases-*.jsonl")) for edge in phases.read_edges(path, False)]
    offsets = phases.collect_clock_offsets_ns(_read_hosts(folder))
    for edge in edges:
        edge["wall_ns"] -= offsets.get(edge["host"], 0)
    return edges


def _read_hosts(folder: Path) -> list[dict[str, Any]]:
    """Read the hosts of a run with their clocks' offsets; none without its provenance."""
    path = folder / "provenance.json"
    return validation.load_valid_json(path, "provenance").get("hosts", []) if path.is_file() else []


def _make_events(folder: Path, edges: Edges, trace: Trace) -> Iterator[Event]:
    """Yield the events of all parts; parts that the run lacks are noted in ``trace.absent``."""
    axis = _Axis(edges)
    yield from _make_phase_events(edges, axis)
    parts: dict[str, tuple[str, Callable[[Path, _Axis], Iterable[Event]], str]] = {
        "epochs": ("history.csv", _make_epoch_events, "the run has no history: it failed, or is still running"),
        "communication": (timeline.FILE, _make_timeline, "the run has no trace: true, or ended before it communicated"),
        "power": ("telemetry.csv", _make_power_events, "no sensor was read"),
    }
    for part, (name, events, why) in parts.items():
        if not (folder / name).is_file() or not (folder / name).stat().st_size:
            trace.absent[part] = f"{name} is missing or empty: {why}"
            continue
        before = trace.events
        yield from events(folder, axis)
        if trace.events == before:
            trace.absent[part] = f"{name} has nothing of it"


class _Axis:
    """The trace's time axis, in microseconds, to which the hosts' clocks are converted."""

    def __init__(self, edges: Edges) -> None:
        self.zeros_ns = phases.compute_zeros_ns(edges)
        self.first_host = min(edges, key=lambda edge: edge["rank"])["host"]
        first_ns = min(self.zeros_ns[edge["host"]] + edge["monotonic_ns"] for edge in edges)
        self._begin_ns = first_ns - LEAD_NS

    def wall_to_us(self, wall_ns: float) -> float:
        """Convert a wall time of the launching host to microseconds on the axis."""
        return round((wall_ns - self._begin_ns) / 1000, 3)

    def to_us(self, host: str, monotonic_ns: float) -> float:
        """Convert a monotonic time of a host that has logged a phase to microseconds on the axis."""
        return self.wall_to_us(self.zeros_ns[host] + monotonic_ns)


def _make_name_event(kind: str, name: str, process: int, thread: int = 0) -> Event:
    """Make the event that names a process or a thread of the trace."""
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _make_slice(name: str, process: int, thread: int, begin: float, end: float, **arguments: Any) -> Event:
    """Make the event of a slice: a named bar of a thread from ``begin`` to ``end`` (µs)."""
    event = {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": begin,
        "dur": round(max(0.0, end - begin), 3),
    }
    return {**event, "args": arguments} if arguments else event


def _make_phase_events(edges: Edges, axis: _Axis) -> Iterator[Event]:
    """Yield the slices of phases; one without an end lasts until the last edge and says so."""
    hosts = {edge["rank"]: edge["host"] for edge in edges}
    for rank, host in sorted(hosts.items()):
        yield _make_name_event("process_name", f"rank {rank} on {host}", rank)
        yield _make_name_event("thread_name", "phases", rank, PHASES_THREAD)
    last = max(axis.to_us(edge["host"], edge["monotonic_ns"]) for edge in edges)
    begins: dict[tuple[int, str], list[float]] = {}
    for edge in edges:
        moment, key = axis.to_us(edge["host"], edge["monotonic_ns"]), (edge["rank"], edge["phase"])
        if edge["edge"] == "begin":
            begins.setdefault(key, []).append(moment)
        elif begins.get(key):
            yield _make_slice(edge["phase"], edge["rank"], PHASES_THREAD, begins[key].pop(), moment)
        if phases.is_program_end(edge):
            begins = {each: moments for each, moments in begins.items() if each[0] != edge["rank"]}
    for (rank, phase), moments in begins.items():
        for begin in moments:
            yield _make_slice(f"{phase} (no end)", rank, PHASES_THREAD, begin, last)


def _make_epoch_events(folder: Path, axis: _Axis) -> Iterator[Event]:
    """Yield the slices of rank 0's epochs, by the monotonic clock of its host."""
    history = read_csv(folder / "history.csv", EPOCHS)
    if history.empty:
        return  # a program that tells no epochs
    yield _make_name_event("thread_name", "epochs", 0, EPOCHS_THREAD)
    for row in history.to_dict("records"):
        begin = axis.to_us(axis.first_host, row["begin_monotonic_ns"])
        yield _make_slice(f"epoch {row['epoch']}", 0, EPOCHS_THREAD, begin, begin + row["time_s"] * 1e6)


def _make_timeline(folder: Path, axis: _Axis) -> Iterator[Event]:
    """Yield the events of Horovod's timeline: its processes, tensors, become threads."""
    hosts, shift = _read_hosts(folder), float("nan")  # until the timeline tells when it began
    offset_ns = round(hosts[0]["clock_offset_s"] * 1e9) if hosts else 0
    yield _make_name_event("process_name", "communication, as rank 0 saw it", COMMUNICATION)
    for event in Events(folder / timeline.FILE):
        arguments, tensor = event.get("args"), event.get("pid")
        arguments = arguments if isinstance(arguments, dict) else {}
        if isinstance(start := arguments.get("start_time_since_epoch_in_micros"), int | float):
            shift = axis.wall_to_us(start * 1000 - offset_ns)
        if event.get("ph") == "M" and event.get("name") == "process_name" and isinstance(tensor, int):
            yield _make_name_event("thread_name", str(arguments.get("name")), COMMUNICATION, tensor)
        elif event.get("ph") in ("B", "E", "X") and np.isfinite(shift) and isinstance(tensor, int) and _is_time(event):
            yield _shift_event(event, tensor, round(event["ts"] + shift, 3))


def _is_time(event: Event) -> bool:
    """True if an event has a finite time."""
    return isinstance(moment := event.get("ts"), int | float) and bool(np.isfinite(moment))


def _shift_event(event: Event, tensor: int, moment: float) -> Event:
    """Turn an event of the timeline into one of a tensor's thread at another time (µs)."""
    moved: Event = {"ph": event["ph"], "pid": COMMUNICATION, "tid": tensor, "ts": moment}
    if event["ph"] == "X":  # of Horovod, a rank that is ready
        return {**moved, "name": f"rank {event.get('name')} ready", "dur": 0}
    return {**moved, "name": str(event["name"])} if "name" in event else moved


def _make_power_events(folder: Path, axis: _Axis) -> Iterator[Event]:
    """Yield the power of each device; where a sensor has only a counter, the mean power between its readings."""
    path = folder / "telemetry.csv"
    readings = telemetry.read_telemetry_frame(path)
    first = readings.groupby("host")[["wall_ns", "monotonic_ns"]].first()
    zeros = {host: int(row["wall_ns"] - row["monotonic_ns"]) for host, row in first.iterrows()} | axis.zeros_ns
    processes = {host: POWER + place for place, host in enumerate(dict.fromkeys(readings["host"]))}
    for host, process in processes.items():
        yield _make_name_event("process_name", f"power of {host}", process)
    for device in telemetry.read_series(path):
        seconds, watts = device.select_readings(device.power_w)
        name = f"{device.sensor} {device.name} W"
        if not len(seconds):
            read_at, joules = device.select_readings(device.energy_j)
            steps = np.diff(read_at)
            seconds, watts = read_at[1:][steps > 0], np.diff(joules)[steps > 0] / steps[steps > 0]
            name += ", mean since the last reading"
        for second, power in zip(seconds.tolist(), watts.tolist(), strict=True):
            moment = axis.wall_to_us(zeros[device.host] + round(second * 1e9))
            yield {"ph": "C", "name": name, "pid": processes[device.host], "ts": moment, "args": {"W": round(power, 3)}}
