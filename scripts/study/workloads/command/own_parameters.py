"""The parameters of a program: grid keys that its benchmark declares.

A grid gives each by its name. In a run all that differ from their defaults are one text, ``hidden~64+rate~0.1``, the
value of the grid key ``program_parameters``. So records of all benchmarks have the same keys.
"""

from collections.abc import Mapping
from typing import Any

from study.core.errors import StudyError
from study.workloads.command import fits

NAME = "program_parameters"
NONE = "none"  # all have their defaults
BETWEEN, GIVES = "+", "~"


def as_text(given: Mapping[str, Any], declared: Mapping[str, Any], place: str) -> str:
    """The text of the parameters that differ from their defaults, sorted by name.

    Raises:
        StudyError: a value that a parameter cannot have. place: of the grid, for messages.
    """
    for name, value in given.items():
        if not fits(declared[name], value):
            kinds = declared[name].get("choices") or declared[name]["type"]
            raise StudyError(f"{place}.{name}: {value} is not valid; expected {_expected(kinds)}")
    differing = [f"{name}{GIVES}{_word(given[name])}" for name in sorted(declared)
                 if name in given and given[name] != declared[name]["default"]]  # fmt: skip
    return BETWEEN.join(differing) or NONE


def values(text: str, declared: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a run, from its text and the declarations."""
    found = {name: each["default"] for name, each in declared.items()}
    for part in text.split(BETWEEN) if text != NONE else ():
        name, _, word = part.partition(GIVES)
        found[name] = _value(word, declared[name]["type"])
    return found


def schema(declared: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of one value in a grid."""
    kinds = {"integer": "integer", "number": "number", "flag": "boolean", "text": "string"}
    pattern = {"pattern": "^[A-Za-z0-9_.-]{1,60}$", "x-expected": "at most 60 letters, digits and _ . -"}
    of_text = pattern if declared["type"] == "text" else {}
    choices = {"enum": declared["choices"]} if "choices" in declared else {}
    return {"type": kinds[declared["type"]], **of_text, **choices, "description": declared["meaning"]}


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace("e+", "e")


def _value(word: str, kind: str) -> Any:
    if kind == "flag":
        return word == "true"
    if kind == "number":
        return int(word) if word.lstrip("-").isdigit() else float(word)
    return int(word) if kind == "integer" else word


def _expected(kinds: str | list[Any]) -> str:
    return kinds if isinstance(kinds, str) else f"one of {', '.join(map(str, kinds))}"
