"""Accepted values of performance references, in config/references/MACHINE/STUDY.yaml."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.core import configuration, core_schema, units, validation
from study.core.errors import StudyError
from study.core.files import write_text
from study.core.statistics import LogSample, make_exact_sample, make_sample_from_interval

FALSE_ALARM = 0.05  # with which a check raises a false alarm, and with which an interval fails on one side
LEAST_REPEATS = 3  # with two, an interval fails too often (docs/performance-references.md)
LEAST_SHARE = 0.5  # of those that could be compared: fewer are a choice
HEAD = """# Accepted values of the performance references of study {study} on machine {machine}.
# Written by `make check ACCEPT=1`, which replaces this file; see docs/performance-references.md.
"""


@dataclass(frozen=True)
class Accepted:
    """An accepted value, as in the file; see config/schemas/references.schema.yaml.

    value: the geometric mean of ``repeats`` measurements, with its 90 % interval; exact without these two. worth: as
    how many the interval counts them, if fewer, see `study.core.statistics.count_independent`. failed: how many
    further repeats failed; None of a value that was written by hand, where none may. runs: a digest of each of these
    runs, by which they are told from later ones; None of such a value, and for loads. failed_runs: likewise of those
    that failed; None also if none did. hardware: of their hosts; None likewise.
    """

    quantity: str
    point: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    repeats: int | None = None
    worth: float | None = None
    failed: int | None = None
    interval: list[float] | None = None
    fingerprint: str | None = None
    runs: list[str] | None = None
    failed_runs: list[str] | None = None
    hardware: str | None = None
    code: str | None = None
    accepted: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(quantity, point)."""
        return self.quantity, self.point

    @property
    def sample(self) -> LogSample:
        """The value with its uncertainty."""
        if not self.repeats or not self.interval:
            return make_exact_sample(self.value)
        low, high = self.interval
        sample = make_sample_from_interval(self.worth or self.repeats, low, high, FALSE_ALARM)
        return dataclasses.replace(sample, mean=make_exact_sample(self.value).mean)


def build_path(machine: str, study: str) -> Path:
    """The file of a study's accepted values on a machine; the user's own where the workflow is used as a module."""
    return configuration.find_own_folder() / "references" / machine / f"{study}.yaml"


def read(path: Path) -> dict[tuple[str, str], Accepted]:
    """The accepted values by quantity and point; empty without the file.

    Raises:
        StudyError: the file violates its schema, has a value twice, or an interval that is not that of its value.
    """
    if not path.exists():
        return {}
    accepted: dict[tuple[str, str], Accepted] = {}
    for index, entry in enumerate(validation.load_valid_yaml(path, "references")["references"]):
        each, place = Accepted(**entry), f"{validation.shorten_path(path)}: references[{index}]"
        if each.key in accepted:
            raise StudyError(f"{place}: {each.quantity} of {each.point} is given twice; remove one")
        _check_interval(each, place)
        accepted[each.key] = each
    return accepted


def _check_interval(own: Accepted, place: str) -> None:
    """Raise `StudyError` for an interval that is not around the value; see `Accepted.sample`, which has its width only.

    The value may be off the interval's geometric mean by rounding: a tenth of its half-width, or the rounding of
    `write`.
    """
    if not own.interval:
        return
    low, high = own.interval
    remedy = "for a value of your own, remove repeats and interval"
    if not low <= own.value <= high:
        raise StudyError(f"{place}.value: {own.value:g} is outside its interval {own.interval}; {remedy}")
    middle, half = math.sqrt(low * high), math.log(high / low) / 2
    if abs(math.log(own.value / middle)) > max(half / 10, 2e-5):
        raise StudyError(
            f"{place}.interval: the value {own.value:g} is not the geometric mean of {own.interval}, which is "
            f"{middle:.4g}: the interval is that of a geometric mean; {remedy}"
        )


def write(path: Path, entries: Iterable[Accepted]) -> None:
    """Write the file, whole or not at all."""
    content = [
        {name: value for name, value in dataclasses.asdict(entry).items() if value is not None} for entry in entries
    ]
    body = core_schema.dump_yaml({"references": content}, width=120)
    write_text(path, HEAD.format(study=path.stem, machine=path.parent.name) + body)


def are_enough(blocks: int, possible: int) -> bool:
    """True if a verdict may follow from ``blocks`` of ``possible`` ones: three or more, and half of them or more."""
    return blocks >= max(LEAST_REPEATS, LEAST_SHARE * possible)


def round_value(value: float) -> float:
    """``value`` with six significant digits."""
    return float(f"{value:.6g}")


def find_unit(quantity: str) -> str:
    """The unit of a column, from the end of its name; 1 for a number without one."""
    return units.find_unit(quantity) or "1"


def has_limits(entry: Any) -> bool:
    """Whether a reference or an accepted value has limits of its own."""
    return entry.low is not None or entry.high is not None
