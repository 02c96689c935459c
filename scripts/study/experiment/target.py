"""Target quality: what a run has to reach, for time and energy to it (MLPerf Training rules)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from study.core.errors import StudyError

KEY = "target_quality"
PREFIX = "validation_"
SHARES = ("accuracy", "correlation", "_r2")  # ends of the names of quantities that are 1 at best


@dataclass(frozen=True)
class Target:
    """The target quality of a benchmark or of a dataset.

    Args:
        quantity: a column of ``runs.csv`` that begins with ``validation_``, such as ``validation_accuracy``.
        value: the target, in the quantity's own unit.
        at_least: whether the quantity must reach ``value`` from below; else from above, as a loss does.
        why: the source of the value.
    """

    quantity: str
    value: float
    at_least: bool
    why: str

    @classmethod
    def from_declaration(cls, declared: dict[str, Any] | None) -> Target | None:
        """The target of ``target_quality`` in a benchmark's or study's YAML, which fits its schema; None without one.

        Raises `StudyError` for a target that every run reaches, or none.
        """
        if declared is None:
            return None
        at_least = "at_least" in declared
        quantity, value = declared["quantity"], declared["at_least" if at_least else "at_most"]
        if quantity.endswith("loss") and (at_least or value <= 0):
            raise StudyError(f"{KEY}: {quantity} is better if it is smaller: give at_most, above 0")
        if quantity.endswith(SHARES) and not (at_least and 0 < value <= 1):
            raise StudyError(f"{KEY}: {quantity} is better if it is larger: give at_least, above 0 and up to 1")
        return cls(quantity, value, at_least, declared["why"])

    @property
    def column(self) -> str:
        """The quantity's name in ``history.csv``, where Keras names it."""
        return "val_" + self.quantity.removeprefix(PREFIX)

    def find_first_reached(self, values: Iterable[float]) -> int | None:
        """The position of the first of ``values``, one per epoch, that reaches the target; None if none does.

        Keras computes in float32, so 0.95 is stored as 0.94999999: both sides are compared as float32.
        """
        quality, value = np.asarray(list(values), dtype=np.float32), np.float32(self.value)
        (reached,) = np.nonzero(quality >= value if self.at_least else quality <= value)
        return int(reached[0]) if len(reached) else None

    def find_best(self, values: Iterable[float]) -> float:
        """The best of ``values``; NaN if all are NaN."""
        numbers = [value for value in values if not np.isnan(value)]
        return (max if self.at_least else min)(numbers, default=np.nan)

    def __str__(self) -> str:
        return f"{self.quantity} {'>=' if self.at_least else '<='} {self.value:g}"
