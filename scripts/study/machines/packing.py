"""Packing small runs into one batch job, for queues with a minimum size: one Snakemake group per node count.

Packed runs start together, each on its own nodes of the job; the launcher places them. If a job has too few of them to
fill the queue's minimum size, it requests that size anyway.
"""

import argparse
import collections
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from study.machines import launchers


def group(ranks: int, machine: dict[str, Any]) -> str | None:
    """Snakemake's group of a job on so many ranks; None if it is large enough for its own batch job."""
    nodes = launchers.nodes(ranks, machine)
    return f"nodes_{nodes}" if nodes < _smallest(machine) else None


def has_groups(machine: dict[str, Any]) -> bool:
    """Whether some number of ranks is too few for a batch job of its own."""
    return _smallest(machine) > 1


def asked(arguments: Sequence[str]) -> dict[str, int]:
    """``--group-components`` in Snakemake's arguments as a dict: Snakemake itself provides it too late for a plan."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--group-components", nargs="+", default=[])
    given, _ = parser.parse_known_args(arguments)
    return {name: int(number) for name, _, number in (entry.partition("=") for entry in given.group_components)}


def together(ranks: int, machine: dict[str, Any], components: Mapping[str, int]) -> int:
    """Number of runs on so many ranks in one batch job. components: Snakemake's ``--group-components``, a dict."""
    name = group(ranks, machine)
    return components.get(name, 1) if name else 1


def job_nodes(ranks: Iterable[int], machine: dict[str, Any], components: Mapping[str, int]) -> list[int]:
    """Nodes of each batch job of a study, a list. ranks: of each of its runs, an iterable."""
    sizes: list[int] = []
    for each, number in sorted(collections.Counter(ranks).items()):
        most, nodes = together(each, machine, components), launchers.nodes(each, machine)
        chunks = [min(most, number - first) for first in range(0, number, most)]
        sizes += [padded(chunk * nodes, machine) for chunk in chunks]
    return sizes


def padded(nodes: int, machine: dict[str, Any]) -> int:
    """Nodes that a job of packed runs requests."""
    return max(nodes, _smallest(machine))


def advice(ranks: Iterable[int], machine: dict[str, Any], components: Mapping[str, int]) -> str | None:
    """Snakemake arguments that would pack the runs which are too small and not packed yet; None if there are none.

    ranks: as for `job_nodes`.
    """
    if not launchers.of(machine).places_itself:
        return None
    small = {each for each in ranks if group(each, machine) and together(each, machine, components) == 1}
    nodes = sorted({launchers.nodes(each, machine) for each in small})
    kept = [f"{name}={number}" for name, number in sorted(components.items())]
    packs = [f"nodes_{each}={math.ceil(_smallest(machine) / each)}" for each in nodes]
    return " ".join(["--group-components", *kept, *packs]) if packs else None


def _smallest(machine: dict[str, Any]) -> int:
    return machine.get("queue", {}).get("smallest_nodes", 1)
