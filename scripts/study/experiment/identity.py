"""The name and identity of a run: its parameters that differ from their defaults."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from study.core import digests
from study.experiment.parameter import FromBenchmark
from study.experiment.parameters import PARAMETERS

LONGEST_NAME = 200  # bytes of a point's name; file names are limited to 255
# No comma: Snakemake hands a job's wildcards to the job's own Snakemake as NAME=VALUE pairs, split at commas.
SEPARATOR = "+"
IN_NAMES = re.compile(r"[A-Za-z0-9_.+~-]*")
NAMED_BY_FOLDERS = ("benchmark", "dataset")  # each is a level of the path above the point


def filled(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a stored run, in the declared order; missing ones get their default.

    A run that was stored before a key existed has that key's default. Keys that are no longer declared are left out.
    """
    values = {}
    for name, parameter in PARAMETERS.items():
        if name in parameters:
            values[name] = parameters[name]
        elif parameter.has_default:
            values[name] = parameter.default
    return values


def missing(parameters: Mapping[str, Any]) -> list[str]:
    """The keys without a declared default that stored parameters lack; with any, they are not a run's parameters."""
    return [name for name, parameter in PARAMETERS.items() if not parameter.has_default and name not in parameters]


def differing(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters without a declared default or with another value: equal for equal runs, whichever keys exist."""
    return {
        name: parameters[name]
        for name, parameter in PARAMETERS.items()
        if not (parameter.has_default and parameters[name] == parameter.default)
    }


def point_name(parameters: Mapping[str, Any], spec: dict[str, Any]) -> str:
    """The last level of a run's path: ``strong+epochs~8+gpus~4+loader~chunked``.

    Args:
        parameters: all parameters of the run.
        spec: the benchmark's YAML, for the defaults that it gives.

    Returns:
        The scaling mode, then ``name~value`` of each parameter that differs from its default. At most 200 bytes: a
        longer name is truncated and ends with a digest of the whole name.
    """
    parts = [str(parameters["scaling"])]
    for name, value in differing(parameters).items():
        default = PARAMETERS[name].default
        if isinstance(default, FromBenchmark) and default.find(spec, parameters["scaling"]) == value:
            continue
        if name != "scaling" and name not in NAMED_BY_FOLDERS:
            parts.append(f"{name}~{_in_path(value)}")
    return shortened(SEPARATOR.join(parts))


def shortened(name: str) -> str:
    """``name`` if it is short enough for a file name, else its begin and a digest of the whole name."""
    encoded = name.encode()
    if len(encoded) <= LONGEST_NAME:
        return name
    kept = encoded[: LONGEST_NAME - digests.DIGITS - 2].decode(errors="ignore").rpartition(SEPARATOR)[0]
    return f"{kept}{SEPARATOR}~{hashlib.sha256(encoded).hexdigest()[: digests.DIGITS]}"


def fingerprint(content: Mapping[str, Any]) -> str:
    """12 hex digits, a digest of the content; the order of keys does not matter."""
    return digests.short(hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest())


def _in_path(value: Any) -> str:
    """The value in a file's name; a digest of one that is no word, such as a list of members."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if IN_NAMES.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[: digests.DIGITS]
