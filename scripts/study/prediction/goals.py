"""Goals: what a recommended rank count must achieve. Each is a file in config/prediction/goals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from study.core import configuration, validation
from study.core.errors import StudyError

KIND = "prediction/goals"  # the folder in config/


@dataclass(frozen=True)
class Limit:
    """A limit of a quantity; ``at_most`` or ``at_least`` is None."""

    quantity: str
    at_most: float | None
    at_least: float | None

    @property
    def words(self) -> str:
        """The limit in words: ``runtime_s at most 3600``."""
        return f"{self.quantity} at {'most' if self.at_most is not None else 'least'} {self.bound:g}"

    @property
    def bound(self) -> float:
        """The number."""
        return cast(float, self.at_most if self.at_most is not None else self.at_least)

    def is_met(self, values: Any) -> Any:
        """Which values, of an array or a column, are within the limit."""
        return values <= self.bound if self.at_most is not None else values >= self.bound


@dataclass(frozen=True)
class Goal:
    """A goal: minimise a quantity within limits that must hold with a probability. price: of a node-hour, or None."""

    name: str
    description: str
    minimise: str
    limits: tuple[Limit, ...] = field(default=())
    probability: float = 0.9
    price: float | None = None

    @property
    def quantities(self) -> tuple[str, ...]:
        """What is minimised, and what is limited."""
        return self.minimise, *(limit.quantity for limit in self.limits)


def load(name: str, price: float | None = None) -> Goal:
    """Read a goal; raises `StudyError` if it does not exist or violates its schema. price: in place of the goal's."""
    configuration.check_name(KIND, name)
    path = configuration.list_files(KIND)[name]
    content: dict[str, Any] = validation.load_valid_yaml(path, "goal")
    limits = tuple(
        Limit(quantity, bounds.get("at_most"), bounds.get("at_least"))
        for quantity, bounds in content.get("limits", {}).items()
    )
    price = price or content.get("price_per_node_hour")
    goal = Goal(name, content["description"], content["minimise"], limits, content.get("probability", 0.9), price)
    if price is None and "cost" in goal.quantities:
        raise StudyError(f"{validation.shorten_path(path)}: price_per_node_hour is missing, which cost needs")
    return goal
