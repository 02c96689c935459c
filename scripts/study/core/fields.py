"""The fields of the run record and the columns of the CSV files, each declared once in config/fields/.

The record's schema, the columns of ``runs.csv`` and ``loading.csv``, of a run's ``history.csv`` and ``members.csv``,
their types for readers and the page docs/reference/columns.md follow from a declaration. A line there and the code that
fills it add a field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from study.core import checked, csv_files, units
from study.core.paths import CONFIG

FOLDER = CONFIG / "fields"
OF_RUNS = ("run", "training", "input", "power", "timeline", "host")  # files, in the order of the columns
OF_LOADS = ("loads",)
OF_EPOCHS = ("epochs",)  # history.csv
OF_MEMBERS = ("members",)  # members.csv
TEXT, FLAG, WHOLE, NUMBER = "text", "true or false", "integer", "number"  # types of columns
FLAG_OR_TEXT = "true, false or text"  # of a grid key
# {type: (JSON schema of a value, type of its column)}
TYPES: Mapping[str, tuple[dict[str, Any], str]] = {
    "number": ({"type": "number"}, NUMBER),
    "amount": ({"type": "number", "minimum": 0}, NUMBER),
    "positive": ({"type": "number", "exclusiveMinimum": 0}, NUMBER),
    "integer": ({"type": "integer"}, WHOLE),
    "whole": ({"type": "integer", "minimum": 0}, WHOLE),
    "count": ({"type": "integer", "minimum": 1}, WHOLE),
    "flag": ({"type": "boolean"}, FLAG),
    "text": ({"type": "string"}, TEXT),
    "any": ({}, TEXT),
    "list": ({"type": "array"}, TEXT),
    "map": ({"type": "object"}, TEXT),
    "group": ({"type": "object"}, TEXT),
}
CSV_KINDS = {
    TEXT: csv_files.TEXT,
    FLAG: csv_files.FLAG,
    FLAG_OR_TEXT: csv_files.TEXT,
    WHOLE: csv_files.FINITE,
    NUMBER: csv_files.FINITE,
}
NESTED = (dict, list)  # values that fill no column
FILE_NAME = {"pattern": "^[^/]+$", "not": {"enum": [".", ".."]}}
OF_WHOLE_RUN = ("_s", "_w", "_j", "_js")  # ends of names: such columns are empty for a run in several pieces


@dataclass(frozen=True)
class Field:
    """One field, declared once; everything else about it is derived from this.

    Args:
        name: its key in the record, within its section's.
        type: a key of `TYPES`.
        meaning: in words, for the docs and the report.
        empty: when it is empty, as in "empty with one epoch". A field without one is never null in the record.
        column: its column; by default the section's ``prefix`` and the name. None for no column, which is the default
            of fields inside of others.
        derived: whether it is a column only, computed from the record and other files.
        unit: of its column, where the end of the name does not tell it.
        choices, pattern, least: of a text or list.
        of: of a list or map, the declaration of a value. keys: of a map, all possible ones; file_names: likewise.
        fields, others: of a group, its fields, and the declaration of any others.
        measure: whether figures, findings and references may use its column.
        of_last_piece: whether it is empty for a run that resumed, whatever its unit is.
        meter: of power and energy, the kind of device whose meters tell it: gpu (of a node without GPUs, the host's),
            cpu, memory, node, or job for all of them.
        alike: what runs with several values are, which are then not compared. freed_by: the grid keys that may change
            it.
        result: whether it is empty in a run that a check failed; of a section, whether it is.
    """

    name: str
    type: str
    meaning: str = ""
    empty: str = ""
    column: str | None = None
    derived: bool = False
    unit: str | None = None
    choices: tuple[Any, ...] = ()
    pattern: str = ""
    least: int = 0
    of: Field | None = None
    keys: tuple[str, ...] = ()
    file_names: bool = False
    fields: tuple[Field, ...] = ()
    others: Field | None = None
    measure: bool = False
    of_last_piece: bool = False
    meter: str = ""
    alike: str = ""
    freed_by: tuple[str, ...] = ()
    result: bool = False

    @property
    def column_type(self) -> str:
        """The type of its column: `TEXT`, `FLAG`, `WHOLE` or `NUMBER`."""
        return TYPES[self.type][1]

    @property
    def column_unit(self) -> str | None:
        """The unit of its column; None without one."""
        return self.unit or units.of_column(self.column or self.name)

    @property
    def is_of_whole_run(self) -> bool:
        """Whether its column is empty for a run that was trained in several pieces."""
        return self.of_last_piece or (self.column or "").endswith(OF_WHOLE_RUN)

    @property
    def text(self) -> str:
        """Its meaning, and when it is empty."""
        return f"{self.meaning}; empty {self.empty}" if self.empty else self.meaning

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its value in the record."""
        found = {**TYPES[self.type][0], **({"description": self.meaning} if self.meaning else {})}
        if self.choices:
            found["enum"] = [*self.choices, *([None] if self.empty else [])]
        if self.pattern:
            found["pattern"] = self.pattern
        if self.least:
            found["minItems"] = self.least
        if self.of:
            found["items" if self.type == "list" else "additionalProperties"] = self.of.schema()
        if self.keys or self.file_names:
            found["propertyNames"] = FILE_NAME if self.file_names else {"enum": list(self.keys)}
        if self.type == "group":
            found |= group_schema(self.fields, self.others)
        if self.empty and "type" in found:
            found["type"] = [found["type"], "null"]
        return found


@dataclass(frozen=True)
class Section:
    """Fields that belong together in the docs, and under one key of the record if there is a ``key``.

    source: where they come from. prefix: of the names of their columns. Others as of a `Field`.
    """

    title: str
    source: str
    fields: tuple[Field, ...]
    key: str | None = None
    prefix: str = ""
    empty: str = ""
    others: Field | None = None
    result: bool = False

    @property
    def in_record(self) -> tuple[Field, ...]:
        """The fields that are keys of the record: the section's own one, or all of its fields."""
        stored = tuple(each for each in self.fields if not each.derived)
        if self.key is None:
            return stored
        group = Field(self.key, "group", self.title, self.empty, fields=stored, others=self.others)
        return (group,)

    def stored(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """{column: value} of its fields as they are in a record, but for lists and mappings; None if they are not."""
        empty, names = self._columns
        values: dict[str, Any] = dict(empty)
        found = record if self.key is None else record.get(self.key) or {}
        for column, name in names if found else ():
            value = found.get(name)
            if value is not None and not isinstance(value, NESTED):
                values[column] = value
        return values

    @functools.cached_property
    def _columns(self) -> tuple[dict[str, None], list[tuple[str, str]]]:
        """All columns, empty, and (column, its key in the record) of those that are not derived.

        Made once, as tables read thousands of records.
        """
        columns = [each for each in self.fields if each.column and not is_pattern(each)]
        return dict.fromkeys(str(each.column) for each in columns), [
            (str(each.column), each.name) for each in columns if not each.derived
        ]


def group_schema(fields: tuple[Field, ...], others: Field | None = None) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys; with ``others`` it need not have all of them."""
    return {
        "type": "object",
        "additionalProperties": others.schema() if others else False,
        "required": [] if others else [each.name for each in fields],
        "properties": {each.name: each.schema() for each in fields},
    }


@functools.cache
def sections(files: tuple[str, ...] = OF_RUNS) -> tuple[Section, ...]:
    """The declarations in files of config/fields/."""
    return tuple(_section(given) for name in files for given in checked.load_yaml(FOLDER / f"{name}.yaml")["sections"])


def _section(given: dict[str, Any]) -> Section:
    prefix, own = given.get("prefix", ""), {}
    for name, declared in given["fields"].items():
        column = declared.get("column", f"{prefix}{name}")
        own[name] = {**declared, "column": column or None}
    others = _declared("", given["others"]) if "others" in given else None
    return Section(**{**given, "fields": tuple(_declared(*each) for each in own.items()), "others": others})


def _declared(name: str, given: str | dict[str, Any]) -> Field:
    """A field from its declaration, which may be its type alone."""
    keys: dict[str, Any] = {"type": given} if isinstance(given, str) else dict(given)
    for part in ("of", "others"):
        if part in keys:
            keys[part] = _declared("", keys[part])
    keys["fields"] = tuple(_declared(*each) for each in keys.get("fields", {}).items())
    for part in ("choices", "keys", "freed_by"):
        keys[part] = tuple(keys.get(part, ()))
    return Field(name, **keys)


def record_fields() -> Iterator[Field]:
    """The fields at the top level of a record."""
    for section in sections():
        yield from section.in_record


def record_schema() -> dict[str, Any]:
    """The JSON Schema of a record; any ``parameters`` fit it."""
    return group_schema(tuple(record_fields()))


def results() -> tuple[str, ...]:
    """The keys of a record that are empty in a run that a check failed."""
    return tuple(section.key or each.name for section in sections() for each in section.in_record
                 if section.result or each.result)  # fmt: skip


@functools.cache
def columns(files: tuple[str, ...] = OF_RUNS) -> dict[str, Field]:
    """{name of a column: its field}, in the order of the table, without those of `patterns`."""
    return {each.column: each for each in _with_column(files) if each.column and not is_pattern(each)}


@functools.cache
def patterns() -> dict[str, Field]:
    """{regular expression: field} of columns of which there are several, such as one for each message size."""
    return {f"^{re.sub('<[a-z]+>', '[0-9]+', each.name)}$": each for each in _with_column(OF_RUNS) if is_pattern(each)}


def is_pattern(declared: Field) -> bool:
    """Whether a field stands for several columns: its name has a part in angle brackets."""
    return "<" in declared.name


def _with_column(files: tuple[str, ...]) -> Iterator[Field]:
    for section in sections(files):
        yield from (each for each in section.fields if each.column)


def section(name: str) -> Section:
    """The section with a key of the record, or with a title."""
    return next(each for each in sections() if name in (each.key, each.title))
