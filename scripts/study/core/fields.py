"""The fields of the run record and the columns of the CSV files, each declared once in config/fields/.

The schemas of the record and of what each rank measures, the columns of ``runs.csv`` and ``loading.csv``, of a run's
``history.csv`` and ``members.csv``, their types for readers and the page docs/reference/columns.md follow from a
declaration. A line there and the code that fills it add a field.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from study.core import csv_files, units, validation
from study.core.paths import CONFIG

FOLDER = CONFIG / "fields"
RUN_FILES = ("run", "training", "input", "power", "timeline", "host")  # files, in the order of the columns
LOAD_FILES = ("loads",)
EPOCH_FILES = ("epochs",)  # history.csv
MEMBER_FILES = ("members",)  # members.csv
TEXT, FLAG, WHOLE, NUMBER = "text", "true or false", "integer", "number"  # types of columns
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
    WHOLE: csv_files.FINITE,
    NUMBER: csv_files.FINITE,
}
NESTED = (dict, list)  # values that fill no column
FILE_NAME = {"pattern": "^[^/]+$", "not": {"enum": [".", ".."]}}
WHOLE_RUN_ENDS = ("_s", "_w", "_j", "_js")  # ends of names: such columns are empty for a run in several pieces


@dataclass(frozen=True)
class Field:
    """One declared field, from which everything else about it is derived.

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
        of_ranks: whether metrics.json has it for each rank and server, under the name of the column.
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
    of_ranks: bool = False

    @property
    def column_type(self) -> str:
        """The type of its column: `TEXT`, `FLAG`, `WHOLE` or `NUMBER`."""
        return TYPES[self.type][1]

    @property
    def column_unit(self) -> str | None:
        """The unit of its column; None without one."""
        return self.unit or units.find_unit(self.column or self.name)

    @property
    def is_of_whole_run(self) -> bool:
        """True if its column is empty for a run that was trained in several pieces."""
        return self.of_last_piece or (self.column or "").endswith(WHOLE_RUN_ENDS)

    @property
    def text(self) -> str:
        """Its meaning and when it is empty, in words."""
        return f"{self.meaning}; empty {self.empty}" if self.empty else self.meaning

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its value in the record."""
        value_schema = {**TYPES[self.type][0], **({"description": self.meaning} if self.meaning else {})}
        if self.choices:
            value_schema["enum"] = [*self.choices, *([None] if self.empty else [])]
        if self.pattern:
            value_schema["pattern"] = self.pattern
        if self.least:
            value_schema["minItems"] = self.least
        if self.of:
            value_schema["items" if self.type == "list" else "additionalProperties"] = self.of.schema()
        if self.keys or self.file_names:
            value_schema["propertyNames"] = FILE_NAME if self.file_names else {"enum": list(self.keys)}
        if self.type == "group":
            value_schema |= build_group_schema(self.fields, self.others)
        if self.empty and "type" in value_schema:
            value_schema["type"] = [value_schema["type"], "null"]
        return value_schema


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
        """The fields that are keys of the record: one for the section's key, else all of its fields."""
        stored = tuple(each for each in self.fields if not each.derived)
        if self.key is None:
            return stored
        group = Field(self.key, "group", self.title, self.empty, fields=stored, others=self.others)
        return (group,)

    def extract_columns(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """{column: value} of its fields in a record; None for lists, mappings and missing values."""
        empty, names = self._columns
        values: dict[str, Any] = dict(empty)
        content = record if self.key is None else record.get(self.key) or {}
        for column, name in names if content else ():
            value = content.get(name)
            if value is not None and not isinstance(value, NESTED):
                values[column] = value
        return values

    @functools.cached_property
    def _columns(self) -> tuple[dict[str, None], list[tuple[str, str]]]:
        """Names of all columns with None, and (column, key in the record) of those that are not derived.

        Made once, as tables read thousands of records.
        """
        columns = [each for each in self.fields if each.column and not is_pattern(each)]
        return dict.fromkeys(str(each.column) for each in columns), [
            (str(each.column), each.name) for each in columns if not each.derived
        ]


def build_group_schema(fields: tuple[Field, ...], others: Field | None = None) -> dict[str, Any]:
    """JSON Schema of a mapping with these keys; with ``others`` none is required."""
    return {
        "type": "object",
        "additionalProperties": others.schema() if others else False,
        "required": [] if others else [each.name for each in fields],
        "properties": {each.name: each.schema() for each in fields},
    }


@functools.cache
def load_sections(files: tuple[str, ...] = RUN_FILES) -> tuple[Section, ...]:
    """The sections declared in files of config/fields/."""
    contents = [validation.read_yaml(FOLDER / f"{name}.yaml") for name in files]
    return tuple(_parse_section(declaration) for content in contents for declaration in content["sections"])


def _parse_section(declaration: dict[str, Any]) -> Section:
    """A section from its declaration."""
    prefix, fields = declaration.get("prefix", ""), {}
    for name, declared in declaration["fields"].items():
        column = declared.get("column", f"{prefix}{name}")
        fields[name] = {**declared, "column": column or None}
    others = _parse_field("", declaration["others"]) if "others" in declaration else None
    return Section(**{**declaration, "fields": tuple(_parse_field(*each) for each in fields.items()), "others": others})


def _parse_field(name: str, declaration: str | dict[str, Any]) -> Field:
    """A field from its declaration, which may be its type alone."""
    keys: dict[str, Any] = {"type": declaration} if isinstance(declaration, str) else dict(declaration)
    for part in ("of", "others"):
        if part in keys:
            keys[part] = _parse_field("", keys[part])
    keys["fields"] = tuple(_parse_field(*each) for each in keys.get("fields", {}).items())
    for part in ("choices", "keys", "freed_by"):
        keys[part] = tuple(keys.get(part, ()))
    return Field(name, **keys)


def list_record_fields() -> Iterator[Field]:
    """The fields at the top level of a record."""
    for section in load_sections():
        yield from section.in_record


def build_record_schema() -> dict[str, Any]:
    """The JSON Schema of a record; any ``parameters`` fit it."""
    return build_group_schema(tuple(list_record_fields()))


@functools.cache
def metrics_schema() -> dict[str, Any]:
    """The JSON Schema of metrics.json, with the fields that each rank and server measures; any may be null there."""
    schema = copy.deepcopy(validation.read_schema("metrics"))
    measured = (each for each in _list_fields_with_column((*RUN_FILES, *EPOCH_FILES)) if each.of_ranks)
    schema["$defs"]["process"]["properties"] = {
        str(each.column): {**TYPES[each.type][0], "type": ["number", "null"]}  # of counts the mean over the epochs
        for each in measured
    }
    return schema


def list_result_keys() -> tuple[str, ...]:
    """Keys of a record that are empty in a run that failed a check."""
    return tuple(section.key or each.name for section in load_sections() for each in section.in_record
                 if section.result or each.result)  # fmt: skip


@functools.cache
def list_columns(files: tuple[str, ...] = RUN_FILES) -> dict[str, Field]:
    """{column: its field} in the order of the table, without those of `list_column_patterns`."""
    return {each.column: each for each in _list_fields_with_column(files) if each.column and not is_pattern(each)}


@functools.cache
def list_column_patterns() -> dict[str, Field]:
    """{regular expression: field} of fields with several columns, such as one for each message size."""
    return {
        f"^{re.sub('<[a-z]+>', '[0-9]+', each.name)}$": each
        for each in _list_fields_with_column(RUN_FILES)
        if is_pattern(each)
    }


def is_pattern(declared: Field) -> bool:
    """True if a field stands for several columns: its name has a part in angle brackets."""
    return "<" in declared.name


def _list_fields_with_column(files: tuple[str, ...]) -> Iterator[Field]:
    """The fields with a column, in the order of the table."""
    for section in load_sections(files):
        yield from (each for each in section.fields if each.column)


def find_section(name: str) -> Section:
    """The section with this key of the record or this title."""
    return next(each for each in load_sections() if name in (each.key, each.title))
