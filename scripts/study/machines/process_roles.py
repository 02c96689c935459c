"""The processes of a run and their roles: ranks, or the chief, workers and servers of the other strategies."""

from __future__ import annotations

from dataclasses import dataclass

HOROVOD, PARAMETER_SERVER, DDP = "horovod", "parameter_server", "ddp"
CHIEF, WORKER, SERVER, IDLE = "chief", "worker", "server", "idle"


@dataclass(frozen=True)
class Role:
    """What one process of a run is: the chief, worker ``index`` or server ``index``; or an idle one, see `by_rank`."""

    kind: str
    index: int

    def __str__(self) -> str:
        return self.kind if self.kind == CHIEF else f"{self.kind} {self.index}"


def roles(strategy: str, workers: int, servers: int) -> list[Role]:
    """The processes of a run in their order: of a parameter server the chief, the workers, then the servers."""
    chiefs = [Role(CHIEF, 0)] if strategy == PARAMETER_SERVER else []
    return [*chiefs, *(Role(WORKER, n) for n in range(workers)), *(Role(SERVER, n) for n in range(servers))]


def by_rank(strategy: str, workers: int, servers: int, per_node: int) -> list[Role]:
    """The roles by rank, where a batch system's launcher starts equal processes, ``per_node`` on each node.

    Chief and servers are on nodes of their own, as in han2019, section IV-C2: a worker beside a server has part of the
    weights without the network. Workers are placed as Horovod's ranks are. Idle processes fill the nodes of both, so
    that no launcher can place them otherwise; they end at once.
    """
    if strategy != PARAMETER_SERVER:
        return roles(strategy, workers, servers)
    others = [Role(CHIEF, 0), *(Role(SERVER, n) for n in range(servers))]
    found: list[Role] = []
    for group in (others, [Role(WORKER, n) for n in range(workers)]):
        found += group
        idle = sum(role.kind == IDLE for role in found)
        found += [Role(IDLE, idle + n) for n in range(-len(group) % per_node)]
    return found
