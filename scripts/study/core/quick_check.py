"""Whether a value fits a JSON Schema, many times faster than `jsonschema`, which then only words what is wrong.

Thousands of records are read for each table of a large study. Keywords as in
https://json-schema.org/draft/2020-12/json-schema-validation, types as in `study.core.configuration`.
"""

import re
from collections.abc import Callable
from typing import Any

from study.core.configuration import VALIDATOR

Fits = Callable[[Any], bool]

SAYS_NOTHING = ("$schema", "$defs", "title", "description")
IS = VALIDATOR.TYPE_CHECKER.is_type


def compiled(schema: dict[str, Any]) -> Fits:
    """A function that tells whether a value fits ``schema``. Raises `KeyError` for a keyword that is not among ours."""
    return _of(schema, schema)


def _of(schema: Any, root: dict[str, Any]) -> Fits:
    if isinstance(schema, bool):
        return lambda _: schema
    parts = [KEYWORDS[name](value, schema, root) for name, value in schema.items() if name not in SAYS_NOTHING]
    if len(parts) == 1:
        return parts[0]
    return lambda value: all(part(value) for part in parts)


def _type(names: str | list[str], _: dict[str, Any], __: dict[str, Any]) -> Fits:
    if isinstance(names, str):
        return lambda value: IS(value, names)
    return lambda value: any(IS(value, name) for name in names)


def _ref(pointer: str, _: dict[str, Any], root: dict[str, Any]) -> Fits:
    found: Any = root
    for part in pointer.removeprefix("#/").split("/"):
        found = found[part]
    return _of(found, root)


def _properties(schemas: dict[str, Any], _: dict[str, Any], root: dict[str, Any]) -> Fits:
    fits = {name: _of(schema, root) for name, schema in schemas.items()}
    return lambda value: not isinstance(value, dict) or all(fits[name](value[name]) for name in value if name in fits)


def _additional(schema: Any, beside: dict[str, Any], root: dict[str, Any]) -> Fits:
    known, fits = beside.get("properties", {}).keys(), _of(schema, root)
    return lambda value: not isinstance(value, dict) or all(fits(value[name]) for name in value if name not in known)


def _required(names: list[str], _: dict[str, Any], __: dict[str, Any]) -> Fits:
    return lambda value: not isinstance(value, dict) or all(name in value for name in names)


def _property_names(schema: Any, _: dict[str, Any], root: dict[str, Any]) -> Fits:
    fits = _of(schema, root)
    return lambda value: not isinstance(value, dict) or all(fits(name) for name in value)


def _items(schema: Any, _: dict[str, Any], root: dict[str, Any]) -> Fits:
    fits = _of(schema, root)
    return lambda value: not isinstance(value, list) or all(fits(each) for each in value)


def _one_of(schemas: list[Any], _: dict[str, Any], root: dict[str, Any]) -> Fits:
    branches = [_of(schema, root) for schema in schemas]
    return lambda value: sum([fits(value) for fits in branches]) == 1


def _enum(known: list[Any], _: dict[str, Any], __: dict[str, Any]) -> Fits:
    """Of words and numbers only; to JSON, true is not 1."""
    if any(isinstance(each, dict | list) for each in known):
        raise KeyError("enum")
    kinds = [(isinstance(each, bool), each) for each in known]
    return lambda value: (isinstance(value, bool), value) in kinds


def _pattern(pattern: str, _: dict[str, Any], __: dict[str, Any]) -> Fits:
    search = re.compile(pattern).search
    return lambda value: not isinstance(value, str) or search(value) is not None


def _limit(holds: Callable[[Any, Any], bool]) -> Callable[..., Fits]:
    return lambda limit, _, __: lambda value: not IS(value, "number") or holds(value, limit)


KEYWORDS: dict[str, Callable[[Any, dict[str, Any], dict[str, Any]], Fits]] = {
    "type": _type,
    "$ref": _ref,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _required,
    "propertyNames": _property_names,
    "items": _items,
    "oneOf": _one_of,
    "enum": _enum,
    "const": lambda value, beside, root: _enum([value], beside, root),
    "pattern": _pattern,
    "minimum": _limit(lambda value, limit: value >= limit),
    "maximum": _limit(lambda value, limit: value <= limit),
    "exclusiveMinimum": _limit(lambda value, limit: value > limit),
}
