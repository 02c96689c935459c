"""The hosts of a run's processes that Horovod's launcher does not start."""

from __future__ import annotations

from typing import Any

from study.communication.roles import strategy_of
from study.machines import run_layout
from study.machines.run_layout import PARAMETER_SERVER


def hosts_of(run: Any) -> list[str]:
    """The host of each process of a run's definition, in their order; on a machine without hosts all have the same.

    The chief is with the first worker. See `study.machines.run_layout` for the others.
    """
    placed = dict(run.machine.get("hosts") or [["localhost", run.ranks]])
    workers = [host for host, ranks in placed.items() for _ in range(ranks)]
    if strategy_of(run) != PARAMETER_SERVER:
        return workers
    return [workers[0], *workers, *run_layout.place_servers(run["servers"], placed)]
