"""Folders of a machine from which runs may read their files instead of ``data_dir`` (grid key ``storage``)."""

import os
import re
from collections.abc import Iterable
from typing import Any

from study.core.errors import StudyError

DEFAULT = "none"  # data_dir itself
UNSET = re.compile(r"\$(\w+|\{\w*\})")  # what is left of variables that are not set


def folders(machine: dict[str, Any]) -> dict[str, str]:
    """{name: folder} of the machine's file, with environment variables expanded; ``$NAME`` stays if it is not set."""
    return {name: os.path.expandvars(path).rstrip("/") for name, path in machine.get("storage", {}).items()}


def data_dir(name: str, machine: dict[str, Any], usual: str) -> str:
    """The folder from which a run with ``storage: NAME`` reads. usual: ``data_dir`` of the configuration.

    Raises `StudyError` if the machine has no such storage.
    """
    known = folders(machine)
    if name != DEFAULT and name not in known:
        told = ", ".join(known) or "none"
        raise StudyError(f"storage: {name!r} is not in config/machines/{machine['name']}.yaml: storage; known: {told}")
    return usual if name == DEFAULT else known[name]


def refusals(names: Iterable[str], machine: dict[str, Any]) -> list[str]:
    """Why runs with these values of ``storage`` cannot start on the machine, one line each."""
    lines, known = [], folders(machine)
    for name in dict.fromkeys(names):
        if name == DEFAULT or name not in known:
            continue
        if missing := UNSET.search(known[name]):
            lines.append(
                f"storage: {name}: the variable {missing.group()} is not set; set it to a folder of that storage"
            )
        elif not os.access(known[name], os.W_OK):
            lines.append(f"storage: {name}: {known[name]} is no folder here that can be written to; make it")
    return lines
