"""The declaration of a grid key: type, default, meaning, and excluded combinations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

MOST = 100_000_000  # the largest count that a grid may give


@dataclass(frozen=True)
class Choice:
    """One of several words."""

    values: tuple[str, ...]

    def to_schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""
        return {"enum": list(self.values)}

    def __str__(self) -> str:
        return ", ".join(f"`{value}`" for value in self.values)


@dataclass(frozen=True)
class Count:
    """An integer from ``least`` to ``most``."""

    least: int = 1
    most: int = MOST

    def to_schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def __str__(self) -> str:
        return f"integer, at least {self.least}" + (f", at most {self.most}" if self.most < MOST else "")


@dataclass(frozen=True)
class Number:
    """A number, which need not be an integer, of ``least`` or more and less than ``below``; None for no limit."""

    least: float = 0.0
    below: float | None = None

    def to_schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""
        limit = {} if self.below is None else {"exclusiveMaximum": self.below}
        return {"type": "number", "minimum": self.least, **limit}

    def __str__(self) -> str:
        return f"number, at least {self.least:g}" + ("" if self.below is None else f", below {self.below:g}")


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def to_schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""
        return {"type": "boolean"}

    def __str__(self) -> str:
        return "`true` or `false`"


@dataclass(frozen=True)
class Name:
    """A name that other configuration files define."""

    def to_schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""
        return {"type": "string"}

    def __str__(self) -> str:
        return "name"


@dataclass(frozen=True)
class EpochList:
    """Epochs joined by ``-``, such as ``30-60-80``, or ``none``: a text, since a list is an axis of the grid."""

    def to_schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""
        expected = "none, or epochs such as 30-60-80 (one in quotes)"
        return {"type": "string", "pattern": "^(none|[1-9][0-9]*(-[1-9][0-9]*)*)$", "x-expected": expected}

    def __str__(self) -> str:
        return "`none`, or epochs such as `30-60-80`"


@dataclass(frozen=True)
class MemberList:
    """A list of ensemble members, by its name in the study; see `study.experiment.ensemble`."""

    def to_schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""
        return {"type": "string"}

    def __str__(self) -> str:
        return "name of a list of the study"


@dataclass(frozen=True)
class FromGrid:
    """A default that follows from other keys that the grid gives; `None` if it gives none of them.

    find: from the given keys, {name: value}, to the value. where: from what it follows, for the docs.
    """

    find: Callable[[Mapping[str, Any]], Any]
    where: str


@dataclass(frozen=True)
class FromBenchmark:
    """A default that the benchmark's YAML gives; `None` if it gives none.

    find: from (the benchmark's YAML, scaling mode) to the value. where: the YAML's key, for the docs.
    """

    find: Callable[[dict[str, Any], str], Any]
    where: str


class Required:
    """A key without a default."""


REQUIRED = Required()
WITHOUT_DEFAULT = (Required, FromBenchmark, FromGrid)  # made once: it is asked a hundred times per run
Refusal = Callable[["PlannedRun"], str | None]
RefusalOn = Callable[["PlannedRun", Mapping[str, Any]], str | None]


@dataclass(frozen=True)
class Parameter:
    """One grid key, declared once; everything else about it is derived from this.

    Args:
        name: the key in a study's grids, in records and in ``runs.csv``.
        kind: type or choices of one value.
        meaning: one sentence, for the schema and the reference.
        default: a value; `REQUIRED`; `FromBenchmark`; or `FromGrid`. A default never changes once released: runs that
            finished before the key existed count as runs with its default.
        unit: of the value, if it has one.
        default_in_papers: whether a paper that does not mention the key trained with its default; see
            `study.experiment.methods`, which has the papers' values.
        label: its name in tables and messages; by default the name with blanks.
        refuse: from a `PlannedRun` to the reason why its value cannot be combined with the others', or None.
        refuse_on: from a `PlannedRun` and a machine's file to the reason why the machine cannot have its value, or
            None. Such a run can be planned, but not started there.
        idle: from a `PlannedRun` to the reason why another value than the default has no effect in it, or None. A grid
            or an arm in which that holds for all runs with such a value is refused; a sweep may contain such runs.
        is_repeat: whether runs that differ in it are repeats of one point.
        observes: whether runs with another value than the default give no timings: they are observed more closely, or
            only emulate what is timed.
    """

    name: str
    kind: Choice | Count | Number | Flag | Name | EpochList | MemberList
    meaning: str
    default: Any = REQUIRED
    unit: str | None = None
    default_in_papers: bool = False
    label: str = ""
    refuse: Refusal | None = None
    refuse_on: RefusalOn | None = None
    idle: Refusal | None = None
    is_repeat: bool = False
    observes: bool = False

    @functools.cached_property
    def has_default(self) -> bool:
        """Whether the declaration itself gives a default value."""
        return not isinstance(self.default, WITHOUT_DEFAULT)

    @property
    def words(self) -> str:
        """The key's name in tables and messages."""
        return self.label or self.name.replace("_", " ")
