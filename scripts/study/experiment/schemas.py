"""JSON Schemas derived from the declared parameters and inserted into those of config/schemas."""

import copy
import functools
from collections.abc import Mapping
from typing import Any

from study.core import checked
from study.data.images.formats import FORMATS
from study.data.loaders import LOADERS
from study.experiment.parameter import REQUIRED, Choice
from study.experiment.parameters import PARAMETERS
from study.experiment.parameters.workload import AVAILABLE
from study.workloads.command import own_parameters


@functools.cache
def studies() -> dict[str, Any]:
    """The schema of config/studies/NAME.yaml: ``grid`` has every parameter, each alone or as a list."""
    schema = copy.deepcopy(checked.named_schema("studies"))
    grid = schema["$defs"]["grid"]
    declared = {
        name: several(parameter.kind.schema() | {"description": parameter.meaning})
        for name, parameter in PARAMETERS.items()
        if not parameter.is_repeat
    }
    grid["properties"] = declared | grid["properties"]
    grid["properties"]["gpus"] = grid["properties"]["gpus"] | {
        "oneOf": [*grid["properties"]["gpus"]["oneOf"], {"const": AVAILABLE}]
    }
    schema["$defs"]["arm"]["properties"] = {
        name: PARAMETERS[name].kind.schema() | {"description": PARAMETERS[name].meaning} for name in declared
    }
    grid["required"] = [name for name, parameter in PARAMETERS.items() if _is_asked_for(name)]
    schema["$defs"]["measured_loader"] = Choice((*LOADERS, *(name for name in FORMATS if name not in LOADERS))).schema()
    schema["$defs"]["target_quality"] = checked.named_schema("benchmarks")["$defs"]["target_quality"]
    return schema


def with_own_parameters(specs: Mapping[str, Any]) -> dict[str, Any]:
    """`studies`, where grids and arms may also give the parameters of programs. specs: {benchmark: its YAML}."""
    own: dict[str, list[Any]] = {}
    for spec in specs.values():
        for name, declared in spec["parameters"].items():
            own.setdefault(name, []).append(own_parameters.schema(declared))
    if not own:
        return studies()
    schema = copy.deepcopy(studies())
    for name, each in own.items():  # of several benchmarks, each checks its own when the grid is expanded
        value = each[0] if len(each) == 1 else {"anyOf": each}
        schema["$defs"]["grid"]["properties"][name] = several(value)
        schema["$defs"]["arm"]["properties"][name] = value
    return schema


def _is_asked_for(name: str) -> bool:
    return PARAMETERS[name].default is REQUIRED and name != "dataset"


@functools.cache
def record_parameters() -> dict[str, Any]:
    """The schema of a record's ``parameters``: keys without a default are required, unknown keys are refused."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, parameter in PARAMETERS.items() if not parameter.has_default],
        "properties": {name: parameter.kind.schema() for name, parameter in PARAMETERS.items()},
    }


def separating() -> list[str]:
    """The parameters in which runs of one point must not differ: all except the repeat."""
    return [name for name, parameter in PARAMETERS.items() if not parameter.is_repeat]


def several(schema: dict[str, Any]) -> dict[str, Any]:
    """A value, or a list of different ones."""
    description = {key: schema[key] for key in ("description",) if key in schema}
    value = {key: schema[key] for key in schema if key != "description"}
    return {**description, "oneOf": [value, {"type": "array", "minItems": 1, "uniqueItems": True, "items": value}]}
