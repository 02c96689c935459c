"""Read all devices at a steady rate and write every reading; a separate process, without TensorFlow.

It also writes what else uses the host (`study.instruments.background`), at a rate of its own.

It ends when its standard input is closed. That happens however the ranks that keep it open end, SIGKILL included, so it
never outlives them.
"""

import csv
import math
import os
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import IO, Any

from study.core.files import AnyPath
from study.instruments.background import BackgroundFile
from study.instruments.power.readings import Device, Reading

MEASURES = tuple(field.name for field in fields(Reading))
COLUMNS = ("wall_ns", "monotonic_ns", "host", "sensor", "kind", "device", *MEASURES)


def sample(
    devices: Sequence[Device],
    path: AnyPath,
    rate_hz: float,
    stop: IO[Any] = sys.stdin,
    ready: Callable[[], object] = lambda: None,
    background: BackgroundFile | None = None,
) -> None:
    """Write readings of ``devices`` (a list of `readings.Device`) to ``path`` until ``stop`` is closed.

    path: a CSV file with ``COLUMNS``, one row per device and tick; each tick is flushed at once, so that a kill loses
    at most one. rate_hz: ticks per second, each at a random moment of its interval, so that it never keeps step with
    what it measures, such as training steps of the same length. A late tick is not repeated. A device that
    fails has no row for that tick. ``ready`` is called after the first tick, and one more tick follows when ``stop`` is
    closed, so that everything in between is covered. Without devices, only the ``background`` is written.
    """
    host, begun, tick = socket.gethostname(), time.monotonic(), 0
    with open(path, "w", encoding="utf-8", newline="", buffering=1 << 16) as handle:
        writer = csv.writer(handle)
        writer.writerow(COLUMNS)
        closed = announced = False
        while True:
            for device in devices:
                row = _row(device, host)
                if row:
                    writer.writerow(row)
            handle.flush()
            if background and (closed or time.monotonic() >= background.next_s):
                background.row()
            if closed:
                return
            if not announced:
                ready()
                announced = True
            if not devices:
                closed = _closed_before(stop, background.next_s if background else math.inf)
                continue
            now = (time.monotonic() - begun) * rate_hz
            tick = max(tick + 1, int(now))
            begins = max(tick, now)  # what is left of its interval, if the readings before took so long
            closed = _closed_before(stop, begun + (begins + random.random() * (tick + 1 - begins)) / rate_hz)  # noqa: S311


def _row(device: Device, host: str) -> list[Any] | None:
    wall, monotonic = time.time_ns(), time.monotonic_ns()
    try:
        reading = asdict(device.read())
    except Exception:  # whatever a driver's bindings raise: it must not end the other devices' readings
        return None
    values = ["" if reading[name] is None else _short(reading[name]) for name in MEASURES]
    return [wall, monotonic, host, device.sensor, device.kind, device.name, *values]


def _short(value: float) -> float:
    return value if isinstance(value, int) else round(value, 6)


def _closed_before(stop: IO[Any], deadline: float) -> bool:
    """Wait until ``deadline`` (monotonic seconds); True as soon as ``stop`` is closed."""
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([stop], [], [], left)
        if ready and not os.read(stop.fileno(), 4096):
            return True
    return False
