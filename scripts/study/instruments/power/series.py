"""The readings of each device over time, as they are read from a run's ``telemetry.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from study.core.csv_columns import Columns, read_columns
from study.core.csv_files import FINITE, NAME, WHOLE, read_csv
from study.core.files import AnyPath
from study.core.lazy import pandas as pd

# Kinds of the columns of telemetry.csv that are used.
VALUES = ("power_w", "energy_j", "freshness", "utilization_pct", "memory_mb", "average_power_w")
COLUMNS = {"wall_ns": WHOLE, "monotonic_ns": WHOLE, "host": NAME, "sensor": NAME, "kind": NAME, "device": NAME,
           **dict.fromkeys(VALUES, FINITE)}  # fmt: skip

GAP_TICKS = 3  # a longer distance between two readings than so many usual ones is a gap

Values = NDArray[np.float64]


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

    def readings(self, values: Values) -> tuple[Values, Values]:
        """(seconds, values) of the ticks in which ``values``, one of this series' columns, was read."""
        known = ~np.isnan(values)
        return self.seconds[known], values[known]

    def longest_step_s(self, values: Values, least_s: float = 0.0) -> float:
        """The longest distance between two readings of ``values`` that is no gap: three times the usual one.

        least_s: taken for the usual distance if that is shorter.
        """
        steps = np.diff(self.readings(values)[0])
        return GAP_TICKS * max(least_s, float(np.median(steps)) if len(steps) else 0.0)

    def counted_j(self, begin: float, end: float) -> float | None:
        """Rise of the counter in a window, interpolated at its edges; None with fewer than two readings."""
        seconds, energy = self.readings(self.energy_j)
        if len(seconds) < 2:
            return None
        first, last = np.interp([begin, end], seconds, energy)
        return float(last - first)

    def integral_j(self, begin: float, end: float) -> float | None:
        """Integral of power over a window by the trapezoidal rule, interpolated at its edges; None as above."""
        seconds, power = self.readings(self.power_w)
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
    columns = read_columns(path, COLUMNS)
    places: dict[tuple[str, str, str, str], list[int]] = {}  # of the rows of each device
    devices = zip(*(columns[name] for name in ("host", "sensor", "kind", "device")), strict=True)
    for place, device in enumerate(devices):
        places.setdefault(device, []).append(place)
    return [_series(device, columns, np.array(rows)) for device, rows in places.items()]


def _series(device: tuple[str, str, str, str], columns: Columns, rows: NDArray[np.int64]) -> Series:
    """The readings of a device. rows: their places in the file."""
    rows = rows[np.argsort(columns["monotonic_ns"][rows])]
    values = (columns[name][rows].astype(float) for name in VALUES)
    return Series(*device, columns["monotonic_ns"][rows] / 1e9, *values)


def readings_in(path: AnyPath) -> pd.DataFrame:
    """The lines of a ``telemetry.csv`` as a data frame; raises `StudyError` if one is not as it was written."""
    return read_csv(path, COLUMNS)
