"""Packing small runs into one batch job, for queues with a minimum size.

Runs that share a job are one Snakemake group: those of one node count, and of one size of the job if their walltime
needs a larger job than the smallest. Packed runs start together, each on its own nodes of the job; the launcher places
them. If a job has too few of them to fill its size, it requests that size anyway.
"""

import argparse
import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from study.machines import launchers, walltime


@dataclasses.dataclass(frozen=True)
class Timed:
    """A run or a loading measurement, as far as its batch job is concerned.

    ranks: that the launcher starts, see `study.machines.launchers.started`. limit_s: its time limit (s).
    """

    ranks: int
    limit_s: float

    @property
    def minutes(self) -> int:
        """Walltime (minutes) of its job."""
        return walltime.job_minutes(self.limit_s)


def group(timed: Timed, machine: dict[str, Any]) -> str | None:
    """Snakemake's group of a run; None if it is large enough for its own batch job."""
    nodes, smallest = launchers.nodes(timed.ranks, machine), walltime.smallest_nodes(machine)
    if nodes >= smallest:
        return None
    size = _size(timed, machine)
    return f"nodes_{nodes}" if size == smallest else f"nodes_{nodes}_of_{size}"


def _size(timed: Timed, machine: dict[str, Any]) -> int:
    """Nodes of the job that a small run needs; a run that is too long for any job is refused elsewhere."""
    nodes, smallest = launchers.nodes(timed.ranks, machine), walltime.smallest_nodes(machine)
    return walltime.job_nodes(nodes, timed.minutes, machine) or smallest


def has_groups(machine: dict[str, Any]) -> bool:
    """Whether some number of ranks is too few for a batch job of its own."""
    return walltime.smallest_nodes(machine) > 1


def asked(arguments: Sequence[str]) -> dict[str, int]:
    """``--group-components`` in Snakemake's arguments, {group: runs of it in a job}: Snakemake provides it too late."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--group-components", nargs="+", default=[])
    given, _ = parser.parse_known_args(arguments)
    return {name: int(number) for name, _, number in (entry.partition("=") for entry in given.group_components)}


def together(timed: Timed, machine: dict[str, Any], components: Mapping[str, int]) -> int:
    """Number of such runs in one batch job. components: of Snakemake's groups, a dict."""
    name = group(timed, machine)
    return components.get(name, 1) if name else 1


def jobs(timed: Iterable[Timed], machine: dict[str, Any], components: Mapping[str, int]) -> list[tuple[int, int]]:
    """(nodes, minutes) of each batch job of a study; a packed one is counted as long as its group's longest run."""
    groups: dict[str | None, list[Timed]] = collections.defaultdict(list)
    for each in timed:
        groups[group(each, machine)].append(each)
    sizes = [(launchers.nodes(each.ranks, machine), each.minutes) for each in groups.pop(None, ())]
    for name, members in groups.items():
        most, minutes = components.get(str(name), 1), max(each.minutes for each in members)
        nodes = launchers.nodes(members[0].ranks, machine)
        chunks = [min(most, len(members) - first) for first in range(0, len(members), most)]
        sizes += [(padded(chunk * nodes, minutes, machine), minutes) for chunk in chunks]
    return sizes


def padded(nodes: int, minutes: int, machine: dict[str, Any]) -> int:
    """Nodes that a job of packed runs on so many nodes requests, for a walltime of so many minutes."""
    return walltime.job_nodes(nodes, minutes, machine) or max(nodes, walltime.smallest_nodes(machine))


def advised(timed: Iterable[Timed], machine: dict[str, Any], components: Mapping[str, int]) -> dict[str, int]:
    """{group: runs of it in a job} that pack all small runs: as given, and for the others as many as fill a job.

    Empty if there are none, or if the launcher does not place packed runs.
    """
    if not launchers.of(machine).places_itself:
        return dict(components)
    found = dict(components)
    for each in sorted(set(timed), key=lambda each: (each.ranks, each.limit_s)):
        name = group(each, machine)
        if name and found.get(name, 1) == 1:
            found[name] = math.ceil(_size(each, machine) / launchers.nodes(each.ranks, machine))
    return found


def as_arguments(components: Mapping[str, int]) -> str:
    """Snakemake's arguments for such groups."""
    return " ".join(["--group-components", *(f"{name}={number}" for name, number in components.items())])
