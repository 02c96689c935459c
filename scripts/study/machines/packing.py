"""Small runs that share a batch job, where a queue has a smallest size: Snakemake's groups, one for each node count.

Packed runs start at once, each on nodes of its own out of the job's: the launcher places them. A job that has too few
of them to fill the queue's smallest size asks for that size all the same.
"""

import argparse
import collections
import math

from study.machines import launchers

PLACES_ITSELF = {
    "aprun",
    "jsrun",
    "srun",
}  # several at once in a job take different nodes; PALS's mpiexec the same ones


def group(ranks, machine):
    """Snakemake's group of a job on so many ranks, None for one that is large enough for a batch job of its own."""
    nodes = launchers.nodes(ranks, machine)
    return f"nodes_{nodes}" if nodes < _smallest(machine) else None


def asked(arguments):
    """``--group-components`` among Snakemake's arguments as a dict: Snakemake itself tells them too late for a plan."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--group-components", nargs="+", default=[])
    given, _ = parser.parse_known_args(arguments)
    return {name: int(number) for name, _, number in (entry.partition("=") for entry in given.group_components)}


def together(ranks, machine, components):
    """How many runs on so many ranks share a batch job. components: Snakemake's ``--group-components``, a dict."""
    return components.get(group(ranks, machine), 1)


def job_nodes(ranks, machine, components):
    """Nodes of each batch job that a study needs, a list. ranks: of each of its runs, an iterable."""
    sizes = []
    for each, number in sorted(collections.Counter(ranks).items()):
        most, nodes = together(each, machine, components), launchers.nodes(each, machine)
        chunks = [min(most, number - first) for first in range(0, number, most)]
        sizes += [padded(chunk * nodes, machine) for chunk in chunks]
    return sizes


def padded(nodes, machine):
    """Nodes that a job of packed runs asks for."""
    return max(nodes, _smallest(machine))


def advice(ranks, machine, components):
    """The arguments of Snakemake that pack the runs which are too small and not packed yet; None where there are none.

    ranks: as for `job_nodes`.
    """
    if machine["launcher"] not in PLACES_ITSELF:
        return None
    small = {each for each in ranks if group(each, machine) and together(each, machine, components) == 1}
    nodes = sorted({launchers.nodes(each, machine) for each in small})
    kept = [f"{name}={number}" for name, number in sorted(components.items())]
    packs = [f"nodes_{each}={math.ceil(_smallest(machine) / each)}" for each in nodes]
    return " ".join(["--group-components", *kept, *packs]) if packs else None


def _smallest(machine):
    return machine.get("queue", {}).get("smallest_nodes", 1)
