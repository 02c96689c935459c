"""The processes of a run: their roles, the hosts that they are on, and how those reach each other."""

from __future__ import annotations

import re
from dataclasses import dataclass

HOROVOD, PARAMETER_SERVER, DDP = "horovod", "parameter_server", "ddp"
CHIEF, WORKER, SERVER, IDLE = "chief", "worker", "server", "idle"

# A network interface's name. Linux allows nearly all characters; Horovod writes the name unquoted on command lines.
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*")


@dataclass(frozen=True)
class Role:
    """What one process of a run is: chief, worker ``index``, server ``index``, or idle (`list_roles_by_rank`)."""

    kind: str
    index: int

    def __str__(self) -> str:
        return self.kind if self.kind == CHIEF else f"{self.kind} {self.index}"


def list_roles(strategy: str, workers: int, servers: int) -> list[Role]:
    """The processes of a run in their order: of a parameter server the chief, the workers, then the servers."""
    chiefs = [Role(CHIEF, 0)] if strategy == PARAMETER_SERVER else []
    return [*chiefs, *(Role(WORKER, n) for n in range(workers)), *(Role(SERVER, n) for n in range(servers))]


def list_roles_by_rank(strategy: str, workers: int, servers: int, per_node: int) -> list[Role]:
    """The roles by rank, where a batch system's launcher starts equal processes, ``per_node`` on each node.

    Chief and servers are on nodes of their own, as in han2019, section IV-C2: a worker beside a server has part of the
    weights without the network. Workers are placed as Horovod's ranks are. Idle processes fill the nodes of both, so
    that no launcher can place them otherwise; they end at once.
    """
    if strategy != PARAMETER_SERVER:
        return list_roles(strategy, workers, servers)
    others = [Role(CHIEF, 0), *(Role(SERVER, n) for n in range(servers))]
    ordered: list[Role] = []
    for group in (others, [Role(WORKER, n) for n in range(workers)]):
        ordered += group
        idle = sum(role.kind == IDLE for role in ordered)
        ordered += [Role(IDLE, idle + n) for n in range(-len(group) % per_node)]
    return ordered


@dataclass(frozen=True)
class Links:
    """How the hosts of a run reach each other.

    interfaces: {host: its network interface}. here: the launching host's interface. network: in CIDR notation.
    addresses: {host: IPv4 address of its interface}.
    """

    interfaces: dict[str, str]
    here: str
    network: str
    addresses: dict[str, str]


def place_ranks(ranks: int, slots: dict[str, int]) -> dict[str, int]:
    """{host: ranks on it} for the hosts in use: each host is filled before the next one is used.

    ranks: at most as many as there are slots.
    """
    placed: dict[str, int] = {}
    for host, most in slots.items():
        here = min(most, ranks - sum(placed.values()))
        if here > 0:
            placed[host] = here
    return placed


def place_servers(servers: int, placed: dict[str, int]) -> list[str]:
    """The host of each parameter server.

    Hosts without workers come first, as in han2019, section IV-C2: a worker beside a server has its weights without the
    network, and would make most of the steps. After them come the workers' hosts, from the last to the first; then it
    begins again.

    placed: {host: workers} of all hosts, in their order.
    """
    free = [host for host, workers in placed.items() if not workers]
    order = [*free, *(host for host, workers in reversed(placed.items()) if workers)]
    return [order[number % len(order)] for number in range(servers)]
