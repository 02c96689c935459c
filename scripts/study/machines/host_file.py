"""The hosts that a machine's file lists, or that its host file lists."""

import re
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.errors import StudyError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ENTRY = re.compile(rf"(?P<name>{NAME.pattern})(?:\s+slots\s*=\s*(?P<slots>[1-9][0-9]{{0,6}}))?")


def listed(given: dict[str, int] | str) -> dict[str, int]:
    """{host: slots} in the order in which ranks are placed.

    Args:
        given: that, or the path of a host file with a line ``name slots=N`` for each host, as Open MPI's; without
            ``slots`` it is one. A relative path starts from the folder in which snakemake runs.

    Raises:
        StudyError: the host file cannot be read, a line is not of that form, or a host is listed twice.
    """
    if isinstance(given, dict):
        return given
    try:
        lines = Path(given).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise StudyError(
            f"hosts: the host file {given} cannot be read in {Path.cwd()}, the folder of this command: {why}"
        ) from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        entry = ENTRY.fullmatch(text)
        if entry is None:
            raise StudyError(f"{checked.shown(given)}: line {number}: {text!r} is not of the form: name slots=N")
        if entry["name"] in found:
            raise StudyError(f"{checked.shown(given)}: line {number}: {entry['name']} is listed twice")
        found[entry["name"]] = int(entry["slots"] or 1)
    if not found:
        raise StudyError(f"{checked.shown(given)}: lists no host; give lines of the form: name slots=N")
    return found


def settings(machine: dict[str, Any]) -> dict[str, Any]:
    """``hosts``, ``nodes`` and ``ranks_per_node`` of a machine whose file lists hosts; empty for another machine.

    Raises:
        StudyError: as `listed`, or ``interface`` names a host that is not listed.
    """
    if "hosts" not in machine:
        return {}
    slots = listed(machine["hosts"])
    interface = machine.get("interface")
    unknown = [host for host in interface if host not in slots] if isinstance(interface, dict) else []
    if unknown:
        raise StudyError(
            f"interface: {unknown[0]} is not one of the hosts"
            f"{checked.nearest(unknown[0], slots)}; known: {', '.join(slots)}"
        )
    return {"hosts": slots, "nodes": len(slots), "ranks_per_node": max(slots.values())}
