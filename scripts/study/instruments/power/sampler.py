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
from study.instruments.background import COLUMNS as BACKGROUND_COLUMNS
from study.instruments.background import COUNTED, OF_GPUS, Background
from study.instruments.gpus import Gpus
from study.instruments.power.readings import Device, Reading
from study.instruments.standstill import StandstillClock

MEASURES = tuple(field.name for field in fields(Reading))
SHORTEST_S = 0.5  # of a row of the background
MOST_COST = 0.004  # the share of a core that reading the background may take: then rows are longer
BOUNDS = {"utilization_pct": (0, 100), "memory_mb": (0, 1e7), "clock_mhz": (0, 20_000), "temperature_c": (-100, 200)}
COLUMNS = ("wall_ns", "monotonic_ns", "host", "sensor", "kind", "device", *MEASURES)


class BackgroundFile:
    """Writes a row for what a host's counters changed by.

    Args:
        path: the CSV file.
        background: of the host.
        gpus: of the host; a row has their state at its end.
    """

    def __init__(self, path: AnyPath, background: Background, gpus: Gpus | None = None) -> None:
        self._background, self._gpus, self._host = background, gpus, socket.gethostname()
        self._handle = open(path, "w", encoding="utf-8", newline="", buffering=1 << 16)  # noqa: SIM115  until `close`
        self._writer = csv.writer(self._handle)
        self._writer.writerow(BACKGROUND_COLUMNS)
        self._interval, self._standstill = SHORTEST_S, StandstillClock()

    @property
    def next_s(self) -> float:
        """When the next row is due, by the background's clock."""
        return self._background.at + self._interval

    def write_row(self) -> None:
        """Write a row for the time since the last one."""
        began = time.process_time()
        changes = self._background.read_changes()
        if changes is None:
            return
        seconds, values, named = changes
        numbers = [_round_value(values[name]) for name in COUNTED]
        stood_still_s = self._standstill.read_standstill_s(
            self._interval, values["own_cpu_s"] or 0.0, self._background.number_of_cores
        )
        if self._background.is_stopped:
            stood_still_s = max(stood_still_s, seconds)
        clock = _round_value(self._background.read_clock_mhz())
        number = self._background.number_of_cores
        self._writer.writerow(
            [time.time_ns(), time.monotonic_ns(), self._host, _round_value(seconds), number, *numbers, clock, named,
             *self._read_gpus(seconds), _round_value(stood_still_s), " ".join(self._background.doubtful)]
        )  # fmt: skip
        self._handle.flush()
        self._interval = max(SHORTEST_S, (time.process_time() - began) / MOST_COST)

    def _read_gpus(self, seconds: float) -> list[Any]:
        if self._gpus is None:
            return [""] * len(OF_GPUS)
        state = self._gpus.read_state(self._background.is_own)
        times = [None if each is None else seconds * each for each in (state.slowed, state.capped, state.shared)]
        return [*map(_round_value, [*times, state.clock_mhz]), " ".join(state.reason.split()), state.users]

    def close(self) -> None:
        """Write the last row."""
        self.write_row()
        self._handle.close()


def _round_value(value: float | None) -> Any:
    return "" if value is None else round(value, 4)


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
                row = _read_row(device, host)
                if row:
                    writer.writerow(row)
            handle.flush()
            if background and (closed or time.monotonic() >= background.next_s):
                background.write_row()
            if closed:
                return
            if not announced:
                ready()
                announced = True
            if not devices:
                closed = _wait_for_close(stop, background.next_s if background else math.inf)
                continue
            now = (time.monotonic() - begun) * rate_hz
            tick = max(tick + 1, int(now))
            begins = max(tick, now)  # what is left of its interval, if the readings before took so long
            closed = _wait_for_close(stop, begun + (begins + random.random() * (tick + 1 - begins)) / rate_hz)  # noqa: S311


def _read_row(device: Device, host: str) -> list[Any] | None:
    wall, monotonic = time.time_ns(), time.monotonic_ns()
    try:
        reading = asdict(device.read())
    except Exception:  # whatever a driver's bindings raise: it must not end the other devices' readings
        return None
    values = [_round_reading(reading[name]) if _can_be(name, reading[name]) else "" for name in MEASURES]
    return [wall, monotonic, host, device.sensor, device.kind, device.name, *values]


def _can_be(name: str, value: float | None) -> bool:
    """True for a number that a device can have; power and energy are judged by `plausibility`, with their reasons."""
    if value is None or not math.isfinite(value):
        return False
    lowest, highest = BOUNDS.get(name, (-math.inf, math.inf))
    return lowest <= value <= highest


def _round_reading(value: float) -> float:
    return value if isinstance(value, int) else round(value, 6)


def _wait_for_close(stop: IO[Any], deadline: float) -> bool:
    """Wait until ``deadline`` (monotonic seconds); True as soon as ``stop`` is closed."""
    while (remaining_s := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([stop], [], [], remaining_s)
        if ready and not os.read(stop.fileno(), 4096):
            return True
    return False
