"""JSON Schemas by which editors complete and check configuration files, from the same declarations as our own checks.

A file names its schema in its first line, which YAML language servers read. Our checks do not use these files.
"""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.paths import CONFIG, ROOT
from study.experiment import schemas
from study.machines import machine
from study.report.findings import declaration
from study.workloads import command

FOLDER = ROOT / "docs" / "schemas"
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "studies": lambda: _with_programs(schemas.studies()),
    "machines": lambda: _may_have_base(machine.make_schema()),
    "benchmarks": lambda: checked.named_schema("benchmarks"),
    "findings": declaration.schema,
}  # by the folder in config/


def text(kind: str) -> str:
    """The schema of the files in config/``kind``/, as a JSON file."""
    return json.dumps(SCHEMAS[kind](), indent=1, ensure_ascii=False) + "\n"


def path(kind: str) -> Path:
    """Where it is."""
    return FOLDER / f"{kind}.schema.json"


def files(kind: str) -> list[Path]:
    """The repository's own files of a kind, those of its examples too."""
    return sorted([*(CONFIG / kind).glob("*.yaml"), *ROOT.glob(f"examples/*/config/{kind}/*.yaml")])


def with_schema(file: Path, kind: str) -> str:
    """The text of ``file`` with the line that names its schema before all else."""
    named = "# yaml-language-server: $schema="
    first, _, rest = (written := file.read_text(encoding="utf-8")).partition("\n")
    where = os.path.relpath(path(kind), file.parent)
    return f"{named}{where}\n{rest if first.startswith(named) else written}"


def _with_programs(schema: dict[str, Any]) -> dict[str, Any]:
    """Grids of benchmarks that are no programs refuse other keys: a program's may have its ``parameters``."""
    schema = copy.deepcopy(schema)  # which is made once and shared
    grid, arm = schema["$defs"]["grid"], schema["$defs"]["arm"]
    own = [file for file in files("benchmarks") if file.parent.parent == CONFIG]
    ours = {"enum": [file.stem for file in own if not command.is_command(checked.load_yaml(file))]}
    known = [{"propertyNames": {"enum": sorted(each["properties"])}} for each in (grid, arm)]
    for each in (grid, arm):
        del each["additionalProperties"]
    grid["if"] = {"properties": {"benchmark": schemas.several(ours)}}
    grid["then"] = {**known[0], "properties": {"tuning": {"additionalProperties": known[1]}}}
    return schema


def _may_have_base(schema: dict[str, Any]) -> dict[str, Any]:
    """Where a file has a ``base``, what it leaves out is in that file: nothing is required of it."""
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
