"""Merge the readings and findings of the nodes' samplers (`study.instruments.power.sampling`) into the run's files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.files import AnyPath, read_json, write_json, write_text
from study.instruments.power.sampler import COLUMNS, MEASURES
from study.instruments.power.sampling import last_end_ns

END_NS = 2_000_000_000  # two samplers that end together do so within the slower one's period
NANOSECONDS, NAME, NUMBER = r"-?[0-9]{1,19}", r"[^,\0\ufffd]+", r"(-?[0-9]+([.][0-9]+)?(e[+-]?[0-9]{1,2})?)?"
WHOLE = re.compile(",".join([NANOSECONDS] * 2 + [NAME] * 4 + [NUMBER] * len(MEASURES)))  # a line that is not cut off


def merge(ranks: AnyPath, path: AnyPath, sensors: AnyPath, offsets: Mapping[str, int] | None = None) -> None:
    """Merge the nodes' ``telemetry-<node>`` files in the folder ``ranks`` into ``path`` and ``sensors``.

    A line truncated by a kill is left out. A file without content is not written. offsets: nanoseconds by which the
    clocks of hosts are ahead, {host: offset}; they are subtracted from the wall times.
    """
    hosts = [read_json(file) for file in sorted(Path(ranks).glob("telemetry-*.json"))]
    if hosts:
        checked.check(hosts, "sensors", str(ranks))
        write_json(sensors, [each | _end_of_processes(ranks, each) for each in hosts])
    read: dict[str, dict[Path, list[str]]] = {}  # the lines of each device, by the sampler that read it
    for part in sorted(Path(ranks).glob("telemetry-*.csv")):
        for line in part.read_text("utf-8", "replace").split("\n")[1:-1]:
            if WHOLE.fullmatch(line):
                read.setdefault(",".join(line.split(",")[2:6]), {}).setdefault(part, []).append(line)
    whole = [line for samplers in read.values() for line in _most_whole(list(samplers.values()))]
    if whole:
        lines = (_shifted(line, offsets or {}) for line in whole)
        write_text(path, ",".join(COLUMNS) + "\n" + "".join(f"{line}\n" for line in lines))


def _end_of_processes(ranks: AnyPath, sampled: Mapping[str, Any]) -> dict[str, int]:
    """When the last process of a sampler's machine ended, if that is known."""
    ended_ns = last_end_ns(ranks, sampled["boot_id"]) if sampled.get("boot_id") else None
    return {} if ended_ns is None else {"processes_end_monotonic_ns": ended_ns}


def _most_whole(samplers: list[list[str]]) -> list[str]:
    """A device's lines of one sampler, where several ran on its host: of those that read for longest, the fastest."""
    longest = max(map(_length_ns, samplers))
    return max((lines for lines in samplers if _length_ns(lines) >= longest - END_NS), key=len)


def _length_ns(lines: list[str]) -> int:
    """From the first of a device's readings to its last, by the monotonic clock."""
    return int(lines[-1].split(",")[1]) - int(lines[0].split(",")[1])


def _shifted(line: str, offsets: Mapping[str, int]) -> str:
    """A line of a host's telemetry with the wall time of the launching host's clock."""
    wall, monotonic, host, rest = line.split(",", 3)
    return f"{int(wall) - offsets[host]},{monotonic},{host},{rest}" if host in offsets else line
