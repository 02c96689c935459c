"""JSON Schemas derived from the declared parameters and inserted into those of config/schemas."""

import copy
import functools
from collections.abc import Mapping
from typing import Any

from study.core import validation
from study.data.loaders import LOADERS
from study.experiment.parameter import REQUIRED, Choice
from study.experiment.parameters import PARAMETERS
from study.experiment.parameters.workload import AVAILABLE
from study.workloads.command import own_parameters


@functools.cache
def build_study_schema() -> dict[str, Any]:
    """JSON Schema of config/studies/NAME.yaml, whose grids have every parameter as a value or a list."""
    schema = copy.deepcopy(validation.read_schema("studies"))
    grid = schema["$defs"]["grid"]
    declared = {
        name: allow_list(parameter.kind.to_schema() | {"description": parameter.meaning})
        for name, parameter in PARAMETERS.items()
        if not parameter.is_repeat
    }
    grid["properties"] = declared | grid["properties"]
    grid["properties"]["gpus"] = grid["properties"]["gpus"] | {
        "oneOf": [*grid["properties"]["gpus"]["oneOf"], {"const": AVAILABLE}]
    }
    schema["$defs"]["arm"]["properties"] = {
        name: PARAMETERS[name].kind.to_schema() | {"description": PARAMETERS[name].meaning} for name in declared
    }
    required = [name for name, parameter in PARAMETERS.items() if parameter.default is REQUIRED]
    grid["required"] = [name for name in required if name != "dataset"]  # by default that of the benchmark's name
    schema["$defs"]["measured_loader"] = Choice(tuple(LOADERS)).to_schema()
    schema["$defs"]["target_quality"] = validation.read_schema("benchmarks")["$defs"]["target_quality"]
    return schema


def add_own_parameters(specs: Mapping[str, Any]) -> dict[str, Any]:
    """`build_study_schema`, with the parameters of programs as keys of grids and arms. specs: {benchmark: its YAML}."""
    own_schemas: dict[str, list[Any]] = {}
    for spec in specs.values():
        for name, declared in spec["parameters"].items():
            own_schemas.setdefault(name, []).append(own_parameters.build_schema(declared))
    if not own_schemas:
        return build_study_schema()
    schema = copy.deepcopy(build_study_schema())
    for name, alternatives in own_schemas.items():  # of several benchmarks; expansion checks each one's own
        value = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
        schema["$defs"]["grid"]["properties"][name] = allow_list(value)
        schema["$defs"]["arm"]["properties"][name] = value
    return schema


@functools.cache
def build_record_schema() -> dict[str, Any]:
    """JSON Schema of a record's ``parameters``: keys without a default are required, unknown keys are refused."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, parameter in PARAMETERS.items() if not parameter.has_default],
        "properties": {name: parameter.kind.to_schema() for name, parameter in PARAMETERS.items()},
    }


def list_separating_keys() -> list[str]:
    """The parameters that separate points: all except the repeat."""
    return [name for name, parameter in PARAMETERS.items() if not parameter.is_repeat]


def list_series_columns() -> list[str]:
    """The columns of runs.csv in which all rank counts of a series agree."""
    return ["machine", "memory_mode", *(name for name in list_separating_keys() if name != "gpus")]


def allow_list(schema: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a value of ``schema``, or of a list of different ones."""
    description = {key: schema[key] for key in ("description",) if key in schema}
    value = {key: schema[key] for key in schema if key != "description"}
    return {**description, "oneOf": [value, {"type": "array", "minItems": 1, "uniqueItems": True, "items": value}]}
