"""Operations of training steps by TensorFlow's profiler, read from the XSpace that it writes.

TensorFlow brings the format's definition, so that no plugin of TensorBoard is needed.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from study.core.errors import StudyError
from study.instruments.operations import COMMUNICATION, COMPUTE, COPIES, INPUT_WAIT, MARK, OTHER, Operation, Recording

HOROVOD_UNSEEN = (
    "Horovod sends from a thread of its own, which TensorFlow's profiler does not see; trace: true shows it"
)
HOST, GPU = "/host:CPU", "/device:GPU"  # begins of names of planes
STREAM = re.compile(r"Stream #\d+")  # lines of kernels and copies; other lines of a GPU repeat them
KERNEL = re.compile(r"(?P<scope>[^:]*):(?P<type>_?[A-Z]\w*)")  # of an operation in a graph: scope/name:Type
EAGER = re.compile(r"EagerLocalExecute: (?P<type>_?[A-Z]\w*)")  # of an operation outside of a graph
WAIT = "IteratorGetNextOp::DoCompute"  # of a training step for its batch
ASKING = "IteratorGetNext"
RUN, PROCESS, RUN_ID = "FunctionRun", "ExecutorState::Process", "id"  # a graph that Python runs, and its parts
COPYING = {"Copy", "CopyHost", "DeepCopy", "Snapshot", "_Send", "_Recv", "_HostSend", "_HostRecv"}
SENDING = ("Horovod", "Collective", "Nccl")  # begins of types


class TensorFlowProfiler:
    """A `study.instruments.operations.Profiler`. unseen: why communication is not seen, if so."""

    def __init__(self, unseen: str = "") -> None:
        self._unseen = unseen
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        """Start to profile the operations of the host and its GPUs, without Python's functions."""
        import tensorflow as tf

        self._folder = tempfile.TemporaryDirectory()
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0, device_tracer_level=1
        )
        self.synchronize()
        tf.profiler.experimental.start(self._folder.name, options=options)

    def mark(self) -> None:
        """Mark the begin of a step by an annotation."""
        import tensorflow as tf

        with tf.profiler.experimental.Trace(MARK):
            pass

    def synchronize(self) -> None:
        """Wait for the GPUs."""
        import tensorflow as tf

        if tf.config.list_logical_devices("GPU"):
            tf.test.experimental.sync_devices()

    def stop(self) -> None:
        """Stop profiling, and write the file."""
        import tensorflow as tf

        tf.profiler.experimental.stop()

    def collect(self) -> Recording:
        """Read the operations and marks of the profile from its file."""
        import tensorflow as tf
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        files = sorted(Path(self._folder.name).rglob("*.xplane.pb")) if self._folder else []
        if self._folder is None or not files:
            raise StudyError("profile: operations: TensorFlow's profiler has written no file; run again")
        space = xplane_pb2.XSpace()
        space.ParseFromString(files[0].read_bytes())
        self._folder.cleanup()
        device, operations, marks = extract_operations(space)
        return Recording(f"profiler of tensorflow {tf.__version__}", device, operations, marks, self._unseen)


def extract_operations(space: Any) -> tuple[str, list[Operation], list[int]]:
    """Extract (``gpu`` or ``cpu``, operations, begins of the marks) of an XSpace; times in ns of its own clock."""
    host = [plane for plane in space.planes if plane.name == HOST]
    of_host = [each for plane in host for each in _extract_host_operations(plane)]
    marks = sorted(each.begin_ns for each in of_host if each.name == MARK)
    of_gpu = [each for plane in space.planes if plane.name.startswith(GPU) for each in _extract_gpu_operations(plane)]
    waits = [each for each in of_host if each.kind == INPUT_WAIT]
    operations = [*of_gpu, *waits] if of_gpu else [each for each in of_host if each.name != MARK]
    return ("gpu" if of_gpu else "cpu"), operations, marks


def _extract_host_operations(plane: Any) -> Iterator[Operation]:
    """Extract the operations of a host: those of graphs that Python ran, and those that make batches."""
    ran = {each.id for each in _iterate_events(plane) if each.name == RUN}
    for line_id, events in _iterate_lines(plane):
        run: _Event | None = None  # the part of a graph that runs
        for event in sorted(events, key=lambda each: (each.begin_ns, -each.end_ns)):
            if event.name == PROCESS:
                run = event
            is_training = run is None or run.end_ns <= event.begin_ns or run.id in ran
            if (operation := _make_operation(event, f"thread {line_id}", is_training)) is not None:
                yield operation


def _make_operation(event: _Event, lane: str, is_training: bool) -> Operation | None:
    """Make the operation of an event; None for what TensorFlow does around operations."""
    scope = ""
    if event.name == MARK:
        name, kind = MARK, ""
    elif event.name == WAIT:
        name, kind = ASKING, INPUT_WAIT
    elif match := KERNEL.fullmatch(event.name) or EAGER.fullmatch(event.name):
        name, scope = match["type"], match.groupdict().get("scope") or ""
        kind = classify_operation(name) if is_training else OTHER
    else:
        return None
    return Operation(name, kind, lane, event.begin_ns, event.end_ns, scope)


def classify_operation(operation: str) -> str:
    """The kind of an operation on a host, by its type; empty for one that only waits for `WAIT`."""
    if operation == ASKING:
        return ""
    if operation in COPYING:
        return COPIES
    return COMMUNICATION if operation.startswith(SENDING) else COMPUTE


def _extract_gpu_operations(plane: Any) -> Iterator[Operation]:
    """Extract the operations of a GPU: its kernels and copies."""
    for line in plane.lines:
        if STREAM.match(line.name):
            for event in _iterate_line_events(plane, line):
                kind, lane = _classify_gpu_operation(event.name), f"{plane.name} {line.id}"
                yield Operation(event.name, kind, lane, event.begin_ns, event.end_ns)


def _classify_gpu_operation(name: str) -> str:
    """The kind of an operation on a GPU, by its name."""
    if name.startswith("Memcpy"):
        return COPIES
    return COMMUNICATION if "nccl" in name.lower() else COMPUTE


class _Event:
    """An event of a plane. id: of the run of a graph that it belongs to."""

    __slots__ = ("name", "begin_ns", "end_ns", "id")

    def __init__(self, name: str, begin_ns: int, end_ns: int, run: int | None) -> None:
        self.name, self.begin_ns, self.end_ns, self.id = name, begin_ns, end_ns, run


def _iterate_lines(plane: Any) -> Iterator[tuple[int, list[_Event]]]:
    """Iterate over (id, events) of the lines of a plane."""
    for line in plane.lines:
        yield line.id, list(_iterate_line_events(plane, line))


def _iterate_events(plane: Any) -> Iterator[_Event]:
    """Iterate over the events of all lines of a plane."""
    for _, events in _iterate_lines(plane):
        yield from events


def _iterate_line_events(plane: Any, line: Any) -> Iterator[_Event]:
    """Iterate over the events of a line, with times in ns."""
    for event in line.events:
        name = plane.event_metadata[event.metadata_id].name
        begin_ps = line.timestamp_ns * 1000 + event.offset_ps
        run = _read_run_id(plane, event) if name in (RUN, PROCESS) else None
        yield _Event(name, begin_ps // 1000, (begin_ps + event.duration_ps) // 1000, run)


def _read_run_id(plane: Any, event: Any) -> int | None:
    """The id of the run of a graph to which an event belongs; None if it has none."""
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == RUN_ID:
            return stat.int64_value or stat.uint64_value
    return None
