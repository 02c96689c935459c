"""A run's telemetry: merged from the files of its nodes' samplers, and read as the readings of each device over time.

``sensors.json`` has what the samplers (`study.instruments.power.sampling`) say of themselves, by which machines are
told apart; ``telemetry.csv`` has the readings.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core import validation
from study.core.csv_columns import Columns, read_columns
from study.core.csv_files import FINITE, NAME, WHOLE, read_csv
from study.core.files import AnyPath, read_json, write_json, write_text
from study.core.lazy import pandas as pd
from study.instruments.power.sampler import COLUMNS, MEASURES
from study.instruments.power.sampling import read_last_end_ns

ONE_BOOT_NS = 10_000  # machines that were booted within so short a time are one: docs/telemetry.md

END_NS = 2_000_000_000  # two samplers that end together do so within the slower one's period
NANOSECONDS_PATTERN, NAME_PATTERN, NUMBER_PATTERN = (
    r"-?[0-9]{1,19}",
    r"[^,\0\ufffd]+",
    r"(-?[0-9]+([.][0-9]+)?(e[+-]?[0-9]{1,2})?)?",
)
WHOLE_LINE = re.compile(
    ",".join([NANOSECONDS_PATTERN] * 2 + [NAME_PATTERN] * 4 + [NUMBER_PATTERN] * len(MEASURES))
)  # a line that is not cut off

# Kinds of the columns of telemetry.csv that are used.
VALUES = ("power_w", "energy_j", "freshness", "utilization_pct", "memory_mb", "average_power_w")
SERIES_COLUMNS = {"wall_ns": WHOLE, "monotonic_ns": WHOLE, "host": NAME, "sensor": NAME, "kind": NAME, "device": NAME,
           **dict.fromkeys(VALUES, FINITE)}  # fmt: skip

GAP_TICKS = 3  # a longer distance between two readings than so many usual ones is a gap

Values = NDArray[np.float64]


def read_host_samplers(folder: Path) -> list[dict[str, Any]]:
    """The content of ``sensors.json``: one entry a sampler, of which a host may have two. folder: the run's directory.

    Raises:
        StudyError: ``sensors.json`` is damaged.
    """
    sensors = folder / "sensors.json"
    return validation.load_valid_json(sensors, "sensors") if sensors.exists() else []


def group_boots(samplers: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """{boot id: the first boot id of its machine}, as the samplers read them: containers may have ids of their own."""
    complete = (each for each in samplers if each.get("boot_id") and "boot_wall_ns" in each)
    moments = sorted((each["boot_wall_ns"], each["boot_id"]) for each in complete)
    same: dict[str, str] = {}
    for (earlier_ns, boot), (later_ns, other) in itertools.pairwise(moments):
        if later_ns - earlier_ns <= ONE_BOOT_NS:
            same[other] = same.setdefault(boot, boot)
    return same


def explain_shared_name(folder: Path) -> str | None:
    """Why hosts cannot be told apart: several machines have one host name. None if each has its own."""
    samplers, boot_of_host = read_host_samplers(folder), dict[str, str]()
    same = group_boots(samplers)
    for host, boot in ((each.get("host"), each.get("boot_id")) for each in samplers):
        if host and boot and boot_of_host.setdefault(host, same.get(boot, boot)) != same.get(boot, boot):
            return f"several machines are named {host}: whose readings are whose cannot be told; rename one"
    return None


def merge_telemetry(ranks: AnyPath, path: AnyPath, sensors: AnyPath, offsets: Mapping[str, int] | None = None) -> None:
    """Merge the nodes' ``telemetry-<node>`` files in the folder ``ranks`` into ``path`` and ``sensors``.

    A line truncated by a kill is left out. A file without content is not written. offsets: nanoseconds by which the
    clocks of hosts are ahead, {host: offset}; they are subtracted from the wall times.
    """
    hosts = [read_json(file) for file in sorted(Path(ranks).glob("telemetry-*.json"))]
    if hosts:
        validation.validate(hosts, "sensors", str(ranks))
        write_json(sensors, [each | _find_end_of_processes(ranks, each) for each in hosts])
    read: dict[str, dict[Path, list[str]]] = {}  # the lines of each device, by the sampler that read it
    for part in sorted(Path(ranks).glob("telemetry-*.csv")):
        for line in part.read_text("utf-8", "replace").split("\n")[1:-1]:
            if WHOLE_LINE.fullmatch(line):
                read.setdefault(",".join(line.split(",")[2:6]), {}).setdefault(part, []).append(line)
    whole = [line for samplers in read.values() for line in _choose_most_whole(list(samplers.values()))]
    if whole:
        lines = (_shift_line(line, offsets or {}) for line in whole)
        write_text(path, ",".join(COLUMNS) + "\n" + "".join(f"{line}\n" for line in lines))


def _find_end_of_processes(ranks: AnyPath, sampled: Mapping[str, Any]) -> dict[str, int]:
    """When the last process of a sampler's machine ended, if that is known."""
    ended_ns = read_last_end_ns(ranks, sampled["boot_id"]) if sampled.get("boot_id") else None
    return {} if ended_ns is None else {"processes_end_monotonic_ns": ended_ns}


def _choose_most_whole(samplers: list[list[str]]) -> list[str]:
    """The lines of one of the samplers that read a device: of those that read for longest, the fastest one's."""
    longest = max(map(_compute_length_ns, samplers))
    return max((lines for lines in samplers if _compute_length_ns(lines) >= longest - END_NS), key=len)


def _compute_length_ns(lines: list[str]) -> int:
    """From the first of a device's readings to its last, by the monotonic clock."""
    return int(lines[-1].split(",")[1]) - int(lines[0].split(",")[1])


def _shift_line(line: str, offsets: Mapping[str, int]) -> str:
    """A line of a host's telemetry with the wall time of the launching host's clock."""
    wall, monotonic, host, rest = line.split(",", 3)
    return f"{int(wall) - offsets[host]},{monotonic},{host},{rest}" if host in offsets else line


@dataclass(frozen=True)
class Series:
    """Readings of one device over time. seconds: monotonic, ascending; the others are NaN in a tick without a value."""

    host: str
    sensor: str
    kind: str
    name: str
    seconds: Values
    power_w: Values
    energy_j: Values
    freshness: Values
    utilization_pct: Values | None = None  # of a GPU
    memory_mb: Values | None = None  # of a GPU, in use
    average_power_w: Values | None = None  # over the sensor's own window, where it tells this too

    def select_readings(self, values: Values) -> tuple[Values, Values]:
        """(seconds, values) of the ticks in which ``values``, one of this series' columns, was read."""
        is_known = ~np.isnan(values)
        return self.seconds[is_known], values[is_known]

    def compute_longest_step_s(self, values: Values, least_s: float = 0.0) -> float:
        """The longest distance between two readings of ``values`` that is no gap: three times the usual one.

        least_s: taken for the usual distance if that is shorter.
        """
        steps = np.diff(self.select_readings(values)[0])
        return GAP_TICKS * max(least_s, float(np.median(steps)) if len(steps) else 0.0)

    def compute_counter_j(self, begin: float, end: float) -> float | None:
        """Rise of the counter in a window, interpolated at its edges; None with fewer than two readings."""
        seconds, energy = self.select_readings(self.energy_j)
        if len(seconds) < 2:
            return None
        first, last = np.interp([begin, end], seconds, energy)
        return float(last - first)

    def compute_integral_j(self, begin: float, end: float) -> float | None:
        """Integral of power over a window by the trapezoidal rule, interpolated at its edges; None as above."""
        seconds, power = self.select_readings(self.power_w)
        if len(seconds) < 2:
            return None
        inside = (seconds > begin) & (seconds < end)
        edges = np.interp([begin, end], seconds, power)
        return float(
            np.trapezoid(  # type: ignore[attr-defined]  # NumPy's types lack it
                np.concatenate([edges[:1], power[inside], edges[1:]]), np.concatenate([[begin], seconds[inside], [end]])
            )
        )


def read_series(path: AnyPath) -> list[Series]:
    """The `Series` in a ``telemetry.csv``; an empty list if the file is empty."""
    if not Path(path).stat().st_size:
        return []
    columns = read_columns(path, SERIES_COLUMNS)
    places: dict[tuple[str, str, str, str], list[int]] = {}  # of the rows of each device
    devices = zip(*(columns[name] for name in ("host", "sensor", "kind", "device")), strict=True)
    for place, device in enumerate(devices):
        places.setdefault(device, []).append(place)
    return [_make_series(device, columns, np.array(rows)) for device, rows in places.items()]


def _make_series(device: tuple[str, str, str, str], columns: Columns, rows: NDArray[np.int64]) -> Series:
    """The readings of a device. rows: their places in the file."""
    rows = rows[np.argsort(columns["monotonic_ns"][rows])]
    values = (columns[name][rows].astype(float) for name in VALUES)
    return Series(*device, columns["monotonic_ns"][rows] / 1e9, *values)


def read_telemetry_frame(path: AnyPath) -> pd.DataFrame:
    """The lines of a ``telemetry.csv`` as a data frame; raises `StudyError` if one is not as it was written."""
    return read_csv(path, SERIES_COLUMNS)
