"""What the samplers of a run's hosts say of themselves (``sensors.json``), and by what the hosts are told apart."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core import checked

ONE_BOOT_NS = 10_000  # machines that were booted within so short a time are one: docs/telemetry.md


def of_hosts(folder: Path) -> list[dict[str, Any]]:
    """What the sampler of each host found; a host may have two samplers. folder: the run's directory.

    Raises:
        StudyError: ``sensors.json`` is damaged.
    """
    sensors = folder / "sensors.json"
    return checked.load_json(sensors, "sensors") if sensors.exists() else []


def boots(samplers: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """{boot id: the first boot id of its machine}, as the samplers read them: containers may have ids of their own."""
    told = (each for each in samplers if each.get("boot_id") and "boot_wall_ns" in each)
    found = sorted((each["boot_wall_ns"], each["boot_id"]) for each in told)
    same: dict[str, str] = {}
    for (earlier_ns, boot), (later_ns, other) in itertools.pairwise(found):
        if later_ns - earlier_ns <= ONE_BOOT_NS:
            same[other] = same.setdefault(boot, boot)
    return same


def of_one_name(folder: Path) -> str | None:
    """Why hosts cannot be told apart: several machines have one host name. None if each has its own."""
    samplers, seen = of_hosts(folder), dict[str, str]()
    same = boots(samplers)
    for host, boot in ((each.get("host"), each.get("boot_id")) for each in samplers):
        if host and boot and seen.setdefault(host, same.get(boot, boot)) != same.get(boot, boot):
            return f"several machines are named {host}: whose readings are whose cannot be told; rename one"
    return None
