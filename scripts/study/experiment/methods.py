"""The papers' methods: each paper's values of the grid keys, from ``config/papers/PAPER/method.yaml``.

Runs with another value are not compared with the paper's numbers. Papers are found by their folders.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from study.core import validation
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

    def list_accepted(self, benchmark: str | None = None) -> tuple[Any, ...]:
        """The values with which a benchmark's runs are compared with the paper, its own first; empty if any are."""
        return self.benchmarks.get(benchmark or "", self.usual)

    def fits(self, value: Any, benchmark: str | None = None) -> bool:
        """Whether runs with this value are compared with the paper's numbers."""
        return not self.is_stated or value in self.list_accepted(benchmark)


def list_papers() -> list[str]:
    """The papers with a method, sorted."""
    return sorted(path.parent.name for path in CONFIG.glob(f"papers/*/{FILE}"))


@functools.cache
def load_method(paper: str) -> dict[str, PaperValue]:
    """Load a paper's values, {grid key: value}, in the order of the keys; empty if the paper has no method.

    Raises `StudyError` for a key that does not exist, or a value that the key cannot have.
    """
    path = CONFIG / "papers" / paper / FILE
    if not path.is_file():
        return {}
    content, tree = validation.read_yaml_with_tree(path)
    validation.validate(content, build_schema(), validation.shorten_path(path), tree)
    values = {name: _parse_value(value) for name, value in content["values"].items()}
    if content["unmentioned"] == DEFAULT:
        mentioned_by_default = (key for key in PARAMETERS.values() if key.default_in_papers)
        usual = {key.name: PaperValue((key.default,)) for key in mentioned_by_default}
        values = usual | values
    return {name: values[name] for name in PARAMETERS if name in values}


def find_paper_values(name: str) -> dict[str, PaperValue]:
    """Each paper's value of a grid key, {paper: value}, of papers that have one."""
    return {paper: values[name] for paper in list_papers() if name in (values := load_method(paper))}


@functools.cache
def build_schema() -> dict[str, Any]:
    """JSON Schema of ``method.yaml``."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["unmentioned", "values"],
        "properties": {
            "unmentioned": {"enum": [DEFAULT, ANY]},
            "values": {
                "type": "object",
                "additionalProperties": False,
                "properties": {name: _build_value_schema(key.kind.to_schema()) for name, key in PARAMETERS.items()},
            },
        },
    }


def _build_value_schema(value_schema: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a paper's value, from that of one value of the key."""
    alternatives = [value_schema, {"type": "array", "minItems": 1, "items": value_schema}]
    by_benchmark = {
        "type": "object",
        "additionalProperties": False,
        "required": ["usual", "benchmarks"],
        "properties": {
            "usual": {"anyOf": alternatives},
            "benchmarks": {"type": "object", "additionalProperties": {"anyOf": alternatives}},
        },
    }
    return {"anyOf": [*alternatives, {"const": NOT_STATED}, by_benchmark]}


def _parse_value(value: Any) -> PaperValue:
    """The `PaperValue` for a value in ``method.yaml``."""
    if value == NOT_STATED:
        return PaperValue(())
    if isinstance(value, dict):
        return PaperValue(
            _as_tuple(value["usual"]), {key: _as_tuple(each) for key, each in value["benchmarks"].items()}
        )
    return PaperValue(_as_tuple(value))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """A list as a tuple; another value as a tuple of one."""
    return tuple(value) if isinstance(value, list) else (value,)
