"""The roles of a run's processes under the strategies of frameworks, and the variables that tell them."""

from __future__ import annotations

import json
import os
import secrets
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from study.core.errors import exit_with_message
from study.machines import run_layout
from study.machines.run_layout import CHIEF, HOROVOD, IDLE, PARAMETER_SERVER, SERVER, WORKER, Role

JOBS = {CHIEF: "chief", WORKER: "worker", SERVER: "ps"}  # TensorFlow's names in TF_CONFIG
CHIEF_ENDED = 75  # exit code of a worker or server that ends because the chief has ended
PLACES = "STUDY_PROCESS"  # variable, JSON: the fields of `Place`
# Variable, JSON, of processes that have their roles by rank: a token of the attempt, and the names of the launcher's
# variables that may tell the rank.
BY_RANK = "STUDY_BY_RANK"


@dataclass(frozen=True)
class Place:
    """The place of a process among those of its run.

    number: from 0. size: the number of processes, without idle ones. channel: of `study.communication.channel`, a name
    on one host, ``host:port`` between hosts. key: of the run, by which its processes know each other. hosts: of each
    process, in the order of their numbers, a text that is equal for those of one host; empty for an idle process.
    addresses: host:port of each process, at which it may listen.
    """

    number: int
    size: int
    channel: str
    key: str
    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def count_earlier_on_host(self, number: int) -> int:
        """Number of processes before this one on the same host: its number there, from 0."""
        return self.hosts[:number].count(self.hosts[number])

    def list_local_ranks(self, roles: list[Role]) -> list[int]:
        """The local rank of each worker, in the order of the workers."""
        hosts = [host for role, host in zip(roles, self.hosts, strict=True) if role.kind == WORKER]
        return [hosts[:number].count(host) for number, host in enumerate(hosts)]

    def build_variables(self, roles: list[Role], addresses: list[str]) -> dict[str, str]:
        """The environment variables that tell this process its place and the cluster.

        addresses: host:port of each process, in the order of roles; that of an idle one does not matter.
        """
        cluster: dict[str, list[str]] = {}
        for role, address in zip(roles, addresses, strict=True):
            if role.kind != IDLE:
                cluster.setdefault(JOBS[role.kind], []).append(address)
        own_role = roles[self.number]
        task = {"type": JOBS[own_role.kind], "index": own_role.index}
        return {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            "GRPC_FAIL_FAST": "use_caller",  # a lost worker is told to the chief, see TensorFlow's guide
            # gRPC would take the shell's web proxy, even on this host
            "no_grpc_proxy": ",".join(dict.fromkeys(address.partition(":")[0] for address in addresses if address)),
            PLACES: json.dumps([self.number, self.size, self.channel, self.key, self.hosts, addresses]),
        }

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ) -> Place:
        """The place of this process, from the variables of `build_variables`."""
        number, size, channel, key, hosts, addresses = json.loads(variables[PLACES])
        return cls(number, size, channel, key, tuple(hosts), tuple(addresses))


def run_process(main: Callable[[], object]) -> None:
    """Run a script's ``main`` as `exit_with_message` does, then end the process at once.

    When Python ends, TensorFlow takes a second to take itself down; under its strategies it also waits for processes
    that may have ended: for seconds, or for ever. A rank of Horovod that failed ends as usual, so that Horovod tells
    the others; so does a traced one, whose timeline Horovod closes.
    """
    code = 0
    try:
        exit_with_message(main)
    except SystemExit as ended:
        if PLACES not in os.environ:
            raise
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        if PLACES not in os.environ:
            raise
        traceback.print_exc()
        code = 1
    if "HOROVOD_TIMELINE" not in os.environ or PLACES in os.environ:
        _end_process(code)


def _end_process(code: int) -> None:
    """End this process at once, without Python's own tear-down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def get_strategy(run: Any) -> str:
    """The strategy of a run's definition; one made before the key existed lacks it."""
    return run.parameters.get("strategy", HOROVOD)


def build_rank_variables(names: Sequence[str]) -> dict[str, str]:
    """The variables for processes that take their roles by rank, new for each attempt.

    names: of the launcher's variables that may tell the rank.
    """
    return {BY_RANK: json.dumps([secrets.token_hex(16), list(names)])}


def list_run_roles(run: Any, variables: Mapping[str, str] = os.environ) -> list[Role]:
    """The roles of a run's processes, in the order of their numbers. variables: of one of the processes."""
    strategy, servers = get_strategy(run), run["servers"]
    if BY_RANK in variables:
        return run_layout.list_roles_by_rank(strategy, run.ranks, servers, run.machine["ranks_per_node"])
    return run_layout.list_roles(strategy, run.ranks, servers)


def list_hosts(run: Any) -> list[str]:
    """The host of each process of a run's definition, in their order; on a machine without hosts all have the same.

    The chief is with the first worker. See `study.machines.run_layout` for the others.
    """
    ranks_on = dict(run.machine.get("hosts") or [["localhost", run.ranks]])
    workers = [host for host, ranks in ranks_on.items() for _ in range(ranks)]
    if get_strategy(run) != PARAMETER_SERVER:
        return workers
    return [workers[0], *workers, *run_layout.place_servers(run["servers"], ranks_on)]
