"""The papers' methods: each paper's values of the grid keys, from ``config/papers/PAPER/method.yaml``.

Runs with another value are not compared with the paper's numbers. Papers are found by their folders.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from study.core import checked
from study.core.paths import CONFIG
from study.experiment.parameters import PARAMETERS

NOT_STATED = "not stated"  # the paper's method has the key, but the paper does not print its value: any value fits
DEFAULT, ANY = "default", "any"  # what a method says of the keys that it does not mention
FILE = "method.yaml"


@dataclass(frozen=True)
class PaperValue:
    """A paper's value of one grid key.

    Args:
        usual: the values whose runs are compared with the paper, its own first; empty if any are.
        benchmarks: the same for the benchmarks that differ from it, {benchmark: values}.
    """

    usual: tuple[Any, ...]
    benchmarks: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def is_stated(self) -> bool:
        """Whether the paper prints a value."""
        return bool(self.usual)

    def accepted(self, benchmark: str | None = None) -> tuple[Any, ...]:
        """The values whose runs of a benchmark are compared with the paper, its own first; empty if any are."""
        return self.benchmarks.get(benchmark or "", self.usual)

    def fits(self, value: Any, benchmark: str | None = None) -> bool:
        """Whether a run with this value is compared with the paper's numbers."""
        return not self.is_stated or value in self.accepted(benchmark)


def papers() -> list[str]:
    """The papers with a method, sorted."""
    return sorted(path.parent.name for path in CONFIG.glob(f"papers/*/{FILE}"))


@functools.cache
def method(paper: str) -> dict[str, PaperValue]:
    """A paper's values, {grid key: value}, in the order of the keys; empty if the paper has no method.

    Raises `StudyError` for a key that does not exist, or a value that the key cannot have.
    """
    path = CONFIG / "papers" / paper / FILE
    if not path.is_file():
        return {}
    content, tree = checked.read(path)
    checked.check(content, schema(), checked.shown(path), tree)
    given = {name: _value(value) for name, value in content["values"].items()}
    if content["unmentioned"] == DEFAULT:
        usual = {name: PaperValue((each.default,)) for name, each in PARAMETERS.items() if each.default_in_papers}
        given = usual | given
    return {name: given[name] for name in PARAMETERS if name in given}


def of_key(name: str) -> dict[str, PaperValue]:
    """The value of a grid key in each paper that has one, {paper: value}."""
    return {paper: values[name] for paper in papers() if name in (values := method(paper))}


@functools.cache
def schema() -> dict[str, Any]:
    """JSON Schema of a method."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["unmentioned", "values"],
        "properties": {
            "unmentioned": {"enum": [DEFAULT, ANY]},
            "values": {
                "type": "object",
                "additionalProperties": False,
                "properties": {name: _schema(each.kind.schema()) for name, each in PARAMETERS.items()},
            },
        },
    }


def _schema(one: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a paper's value, from that of one value of the key."""
    values = [one, {"type": "array", "minItems": 1, "items": one}]
    by_benchmark = {
        "type": "object",
        "additionalProperties": False,
        "required": ["usual", "benchmarks"],
        "properties": {
            "usual": {"anyOf": values},
            "benchmarks": {"type": "object", "additionalProperties": {"anyOf": values}},
        },
    }
    return {"anyOf": [*values, {"const": NOT_STATED}, by_benchmark]}


def _value(given: Any) -> PaperValue:
    if given == NOT_STATED:
        return PaperValue(())
    if isinstance(given, dict):
        return PaperValue(_several(given["usual"]), {key: _several(each) for key, each in given["benchmarks"].items()})
    return PaperValue(_several(given))


def _several(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list) else (given,)
