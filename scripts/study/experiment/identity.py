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


def fill_defaults(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a stored run, in the declared order; missing ones get their default.

    So a run that was stored before a key existed has its default. Keys that are no longer declared are left out.
    """
    values = {}
    for name, parameter in PARAMETERS.items():
        if name in parameters:
            values[name] = parameters[name]
        elif parameter.has_default:
            values[name] = parameter.default
    return values


def list_missing_keys(parameters: Mapping[str, Any]) -> list[str]:
    """The keys that stored parameters lack and that have no default; with any, they are not a run's parameters."""
    return [name for name, parameter in PARAMETERS.items() if not parameter.has_default and name not in parameters]


def select_differing(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that differ from their declared default or have none: equal for equal runs, despite newer keys."""
    return {
        name: parameters[name]
        for name, parameter in PARAMETERS.items()
        if not (parameter.has_default and parameters[name] == parameter.default)
    }


def name_point(parameters: Mapping[str, Any], spec: dict[str, Any]) -> str:
    """The last level of a run's path, such as ``strong+epochs~8+gpus~4+loader~chunked``.

    Args:
        parameters: all parameters of the run.
        spec: the benchmark's YAML, for the defaults that it gives.

    Returns:
        The scaling mode, then ``name~value`` of each parameter that differs from its default. At most 200 bytes: a
        longer name is truncated and ends with a digest of the whole name.
    """
    parts = [str(parameters["scaling"])]
    for name, value in select_differing(parameters).items():
        default = PARAMETERS[name].default
        if isinstance(default, FromBenchmark) and default.find(spec, parameters["scaling"]) == value:
            continue
        if name != "scaling" and name not in NAMED_BY_FOLDERS:
            parts.append(f"{name}~{_format_value(value)}")
    return shorten_name(SEPARATOR.join(parts))


def shorten_name(name: str) -> str:
    """``name`` if it is short enough for a file name, else its beginning and a digest of the whole name."""
    encoded = name.encode()
    if len(encoded) <= LONGEST_NAME:
        return name
    beginning = encoded[: LONGEST_NAME - digests.DIGITS - 2].decode(errors="ignore").rpartition(SEPARATOR)[0]
    return f"{beginning}{SEPARATOR}~{hashlib.sha256(encoded).hexdigest()[: digests.DIGITS]}"


def compute_fingerprint(content: Mapping[str, Any]) -> str:
    """Digest of the content in 12 hex digits; the order of keys does not matter."""
    return digests.shorten_digest(hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest())


def _format_value(value: Any) -> str:
    """A value as text in a run's path; a digest of one that is no word, such as a list of members."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if IN_NAMES.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[: digests.DIGITS]
