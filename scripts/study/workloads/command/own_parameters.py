"""The parameters of a program: grid keys that its benchmark declares.

A grid gives each by its name. In a run all that differ from their defaults are one text, ``hidden~64+rate~0.1``, the
value of the grid key ``program_parameters``. So records of all benchmarks have the same keys.
"""

from collections.abc import Mapping
from typing import Any

from study.core.errors import StudyError
from study.workloads.command import is_valid_value

NAME = "program_parameters"
NONE = "none"  # all have their defaults
BETWEEN, GIVES = "+", "~"


def as_text(own_values: Mapping[str, Any], declared: Mapping[str, Any], place: str) -> str:
    """The parameters that differ from their defaults as text, sorted by name: ``hidden~64+rate~0.1``.

    Raises:
        StudyError: a value that a parameter cannot have. place: of the grid, for messages.
    """
    for name, value in own_values.items():
        if not is_valid_value(declared[name], value):
            kinds = declared[name].get("choices") or declared[name]["type"]
            raise StudyError(f"{place}.{name}: {value} is not valid; expected {_format_expected(kinds)}")
    differing = [f"{name}{GIVES}{_format_value(own_values[name])}" for name in sorted(declared)
                 if name in own_values and own_values[name] != declared[name]["default"]]  # fmt: skip
    return BETWEEN.join(differing) or NONE


def parse_values(text: str, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the text of a run's parameters, {name: value}; parameters that are not in it have their defaults."""
    values = {name: each["default"] for name, each in declared.items()}
    for part in text.split(BETWEEN) if text != NONE else ():
        name, _, word = part.partition(GIVES)
        values[name] = _parse_value(word, declared[name]["type"])
    return values


def build_schema(declared: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of a parameter's value in a grid."""
    kinds = {"integer": "integer", "number": "number", "flag": "boolean", "text": "string"}
    pattern = {"pattern": "^[A-Za-z0-9_.-]{1,60}$", "x-expected": "at most 60 letters, digits and _ . -"}
    text_limits = pattern if declared["type"] == "text" else {}
    choices = {"enum": declared["choices"]} if "choices" in declared else {}
    return {"type": kinds[declared["type"]], **text_limits, **choices, "description": declared["meaning"]}


def _format_value(value: Any) -> str:
    """A value as a word of the text, without the characters that separate parameters."""
    return str(value).lower() if isinstance(value, bool) else str(value).replace("e+", "e")


def _parse_value(word: str, kind: str) -> Any:
    """The value of a word of the text, by the parameter's type."""
    if kind == "flag":
        return word == "true"
    if kind == "number":
        return int(word) if word.lstrip("-").isdigit() else float(word)
    return int(word) if kind == "integer" else word


def _format_expected(kinds: str | list[Any]) -> str:
    """The expected values in a message. kinds: a type, or the choices."""
    return kinds if isinstance(kinds, str) else f"one of {', '.join(map(str, kinds))}"
