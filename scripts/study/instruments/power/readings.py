"""What all sensors share: devices, their readings, counters that wrap, and the word for a sensor that is not there."""

from collections.abc import Callable
from dataclasses import dataclass

MODELLED = "modelled"  # the sensor's name, and the source's, of power that is not measured
KINDS = ("gpu", "cpu", "memory", "node")  # what a device's power is the power of; a node holds the others


class Unavailable(Exception):
    """A sensor cannot be read on this host; the message says why, and goes into the tables."""


@dataclass(frozen=True)
class Reading:
    """What a device told at one moment; None is what it does not have."""

    power_w: float | None = None  # instant
    average_power_w: float | None = None  # over the sensor's own window
    energy_j: float | None = None  # since the first reading, from a counter
    utilization_pct: float | None = None
    memory_mb: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    freshness: int | None = None  # the sensor's own count of its updates


@dataclass(frozen=True)
class Device:
    """One thing whose power is measured. read: gives a `Reading`; raises OSError or `Unavailable` where it cannot."""

    sensor: str
    kind: str  # of KINDS
    name: str  # a GPU's UUID, else the sensor's own name
    read: Callable


class Counter:
    """A hardware counter as a total that only grows, from 0 at the first reading.

    read: gives the raw value, an integer. unit: what one of the counter is in the total's unit. largest: the raw value
    after which the counter begins at 0 again, None where it does not; it must be read once between two wraps.
    """

    def __init__(self, read, unit, largest=None):
        self._read, self._unit, self._largest = read, unit, largest
        self._last, self._counted = read(), 0

    def total(self):
        """The total by now."""
        raw = self._read()
        step = raw - self._last
        if step < 0:
            if self._largest is None:
                raise OSError(f"a counter that does not wrap went back from {self._last} to {raw}")
            step += self._largest + 1
        self._last, self._counted = raw, self._counted + step
        return self._counted * self._unit
