"""Shared by all sensors: devices, their readings, counters that wrap, and the error for a missing sensor."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from study.core.registry import Registry

MODELLED = "modelled"  # name of the sensor, and of the source, of power that is not measured


class Unavailable(Exception):
    """A sensor cannot be read on this host; the message gives the reason, and appears in the tables."""


@dataclass(frozen=True)
class Reading:
    """A device's values at one moment; None for a value that the device does not have."""

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
    kind: str  # of `study.instruments.power.plausibility.KINDS`
    name: str  # a GPU's UUID, else the sensor's own name
    read: Callable[[], Reading]


@dataclass(frozen=True)
class Missing:
    """A part of a sensor that cannot be read, such as one GPU of four. why: begins with the sensor's name."""

    kind: str
    part: str
    why: str


def make_part_key(sensor: str, kind: str, part: str) -> str:
    """The key of a missing part's reason beside those of sensors, as in ``sensors.json``."""
    return f"{sensor}/{kind}/{part}"


class Devices(list[Device]):
    """The devices of a sensor that can be read, and in ``missing`` the parts of it that cannot."""

    def __init__(self, devices: Iterable[Device] = (), missing: Iterable[Missing] = ()) -> None:
        super().__init__(devices)
        self.missing = list(missing)

    def require_any(self, otherwise: str) -> "Devices":
        """These; raises `Unavailable` if no device is left, with the reasons of the parts, or ``otherwise``."""
        if not self:
            raise Unavailable("; ".join(part.why for part in self.missing) or otherwise)
        return self


def to_words(error: BaseException) -> str:
    """Why a file could not be read, in words; ``OSError`` alone would repeat its path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


class Counter:
    """A hardware counter as a total, from 0 at the first reading.

    read: returns the raw value, an integer. unit: one count in units of the total. largest: the raw value after which
    the counter wraps to 0, None if it does not wrap; it must be read at least once per wrap. The total of a counter
    that does not wrap goes back where the counter does, for example when the driver resets it, so that this can be seen
    in the readings (`study.instruments.power.plausibility`).
    """

    def __init__(self, read: Callable[[], int], unit: float, largest: int | None = None) -> None:
        self._read, self._unit, self._largest = read, unit, largest
        self._last, self._counted = read(), 0

    @property
    def raw(self) -> int:
        """The last value that was read."""
        return self._last

    @property
    def counted(self) -> float:
        """The total as it was read last."""
        return self._counted * self._unit

    def total(self) -> float:
        """The current total."""
        raw = self._read()
        step = raw - self._last
        if step < 0 and self._largest is not None:
            step += self._largest + 1
        self._last, self._counted = raw, self._counted + step
        return self.counted


# Returns this host's devices, as `Devices` if parts may be missing; raises `Unavailable` without any.
SENSORS: Registry[Callable[..., list[Device]]] = Registry("power sensor")
