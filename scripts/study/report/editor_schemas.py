"""JSON Schemas by which editors complete and check configuration files, from the same declarations as our own checks.

A file names its schema in its first line, which YAML language servers read. Our checks do not use these files.
"""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from study.core import validation
from study.core.paths import CONFIG, ROOT
from study.experiment import schemas
from study.machines import machine
from study.report.findings import declaration
from study.workloads import command

FOLDER = ROOT / "docs" / "schemas"
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "studies": lambda: _refuse_other_keys(schemas.build_study_schema()),
    "machines": lambda: _allow_base(machine.make_schema()),
    "benchmarks": lambda: validation.read_schema("benchmarks"),
    "findings": declaration.make_schema,
}  # by the folder in config/


def make_text(kind: str) -> str:
    """The schema of the files in config/``kind``/, as a JSON file."""
    return json.dumps(SCHEMAS[kind](), indent=1, ensure_ascii=False) + "\n"


def find_path(kind: str) -> Path:
    """The file of a schema."""
    return FOLDER / f"{kind}.schema.json"


def list_files(kind: str) -> list[Path]:
    """The repository's own files of a kind, those of its examples too."""
    return sorted([*(CONFIG / kind).glob("*.yaml"), *ROOT.glob(f"examples/*/config/{kind}/*.yaml")])


def add_schema_line(file: Path, kind: str) -> str:
    """The text of ``file`` with a first line that names its schema."""
    named = "# yaml-language-server: $schema="
    first, _, rest = (written := file.read_text(encoding="utf-8")).partition("\n")
    where = os.path.relpath(find_path(kind), file.parent)
    return f"{named}{where}\n{rest if first.startswith(named) else written}"


def _refuse_other_keys(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema whose grids refuse other keys, except those of programs, which have ``parameters`` of their own."""
    schema = copy.deepcopy(schema)  # which is made once and shared
    grid, arm = schema["$defs"]["grid"], schema["$defs"]["arm"]
    own = [file for file in list_files("benchmarks") if file.parent.parent == CONFIG]
    ours = {"enum": [file.stem for file in own if not command.is_command(validation.read_yaml(file))]}
    refusals = [{"propertyNames": {"enum": sorted(each["properties"])}} for each in (grid, arm)]
    for each in (grid, arm):
        del each["additionalProperties"]
    grid["if"] = {"properties": {"benchmark": schemas.allow_list(ours)}}
    grid["then"] = {**refusals[0], "properties": {"tuning": {"additionalProperties": refusals[1]}}}
    return schema


def _allow_base(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that requires nothing of a file with a ``base``, which has what the file leaves out."""
    names = ("required", "if", "then", "dependentRequired")
    required = {name: schema[name] for name in names if name in schema}
    others = {name: value for name, value in schema.items() if name not in names}
    base = {"type": "string", "description": "another machine file; this one has all its keys, but those given here"}
    return {
        **others,
        "properties": {"base": base, **schema["properties"]},
        "if": {"not": {"required": ["base"]}},
        "then": required,
    }
