"""Folders of a machine from which runs may read their files instead of ``data_dir`` (grid key ``storage``).

Those under ``storage`` are shared: Snakemake copies the files there. Those under ``storage_on_nodes`` are of each node:
a run's ranks copy the files there, see `study.training.staging`.
"""

import os
import re
import shutil
from collections.abc import Iterable
from typing import Any

from study.core.errors import StudyError

STRIPED = "stripes-"  # begin of the names of folders with striped copies
DEFAULT = "none"  # data_dir itself
UNSET = re.compile(r"\$(\w+|\{\w*\})")  # what is left of variables that are not set


def list_folders(machine: dict[str, Any]) -> dict[str, str]:
    """{name: folder} of the machine's file, with environment variables expanded; ``$NAME`` stays if it is not set."""
    return {name: os.path.expandvars(path).rstrip("/") for name, path in machine.get("storage", {}).items()}


def list_node_folders(machine: dict[str, Any]) -> dict[str, str]:
    """{name: folder} of each node, as in the machine's file: variables are expanded on the node."""
    return dict(machine.get("storage_on_nodes", {}))


def choose_data_dir(name: str, machine: dict[str, Any], usual: str, stripes: int = 0) -> str:
    """The folder from which a run with ``storage: NAME`` and ``lustre_stripes: N`` reads, or copies to its nodes.

    usual: ``data_dir`` of the configuration. Raises `StudyError` if the machine has no such storage, or one with braces
    in its path.
    """
    storages = list_folders(machine)
    if name in list_node_folders(machine):
        name = DEFAULT
    if name != DEFAULT and name not in storages:
        names = ", ".join([*storages, *list_node_folders(machine)]) or "none"
        raise StudyError(
            f"storage: {name!r} is not under storage in config/machines/{machine['name']}.yaml; known: {names}; "
            f"add {name}: FOLDER there, or leave the key out"
        )
    folder = usual if name == DEFAULT else storages[name]
    if name != DEFAULT and set("{}") & set(UNSET.sub("", folder)):
        why = "Snakemake takes braces for its own; set its variables to folders without them"
        raise StudyError(f"storage: {name}: {folder} in config/machines/{machine['name']}.yaml: {why}")
    return f"{folder}/{STRIPED}{stripes}" if stripes else folder


def list_striped_folders(chosen: Iterable[tuple[str, int]], machine: dict[str, Any], usual: str) -> dict[str, int]:
    """{folder: stripes} of the striped copies that runs read. chosen: their values of storage and lustre_stripes."""
    return {choose_data_dir(name, machine, usual, stripes): stripes for name, stripes in chosen if stripes}


def refuse_stripes(stripes: Iterable[int], machine: dict[str, Any]) -> str | None:
    """Why striped copies cannot be made here, or None."""
    if any(stripes) and machine.get("file_system") == "lustre" and shutil.which("lfs") is None:
        return "lustre_stripes: lfs, Lustre's own program, is not on PATH here"
    return None


def list_refusals(names: Iterable[str], machine: dict[str, Any]) -> list[str]:
    """Why runs with these values of ``storage`` cannot start on the machine, one line each."""
    lines, storages = [], list_folders(machine)
    for name in dict.fromkeys(names):
        if name == DEFAULT or name not in storages:
            continue
        if missing := UNSET.search(storages[name]):
            lines.append(
                f"storage: {name}: the variable {missing.group()} is not set; set it to a folder of that storage"
            )
        elif not os.access(storages[name], os.W_OK):
            lines.append(f"storage: {name}: {storages[name]} is no folder here that can be written to; make it")
    return lines
