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
from study.machines.run_layout import CHIEF, HOROVOD, IDLE, SERVER, WORKER, Role, list_roles, list_roles_by_rank

JOBS = {CHIEF: "chief", WORKER: "worker", SERVER: "ps"}  # TensorFlow's names in TF_CONFIG
CHIEF_ENDED = 75  # exit code of a worker or server that ends because the chief has ended
PLACES = "STUDY_PROCESS"  # variable, JSON: the fields of `Place`
# Variable, JSON, of processes that have their roles by rank: a token of the attempt, and the names of the launcher's
# variables that may tell the rank.
BY_RANK = "STUDY_BY_RANK"


@dataclass(frozen=True)
class Place:
    """A process among those of its run.

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

    def number_on_host(self, number: int) -> int:
        """The number of a process among all of its host, from 0."""
        return self.hosts[:number].count(self.hosts[number])

    def local_ranks(self, roles: list[Role]) -> list[int]:
        """The number of each worker among those on its host, in the order of the workers."""
        on = [host for role, host in zip(roles, self.hosts, strict=True) if role.kind == WORKER]
        return [on[:number].count(host) for number, host in enumerate(on)]

    def variables(self, roles: list[Role], addresses: list[str]) -> dict[str, str]:
        """The environment variables of this process.

        addresses: host:port of each process, in the order of roles; that of an idle one does not matter.
        """
        cluster: dict[str, list[str]] = {}
        for role, address in zip(roles, addresses, strict=True):
            if role.kind != IDLE:
                cluster.setdefault(JOBS[role.kind], []).append(address)
        own = roles[self.number]
        task = {"type": JOBS[own.kind], "index": own.index}
        return {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            "GRPC_FAIL_FAST": "use_caller",  # a lost worker is told to the chief, see TensorFlow's guide
            # gRPC would take the shell's web proxy, even on this host
            "no_grpc_proxy": ",".join(dict.fromkeys(address.partition(":")[0] for address in addresses if address)),
            PLACES: json.dumps([self.number, self.size, self.channel, self.key, self.hosts, addresses]),
        }

    @classmethod
    def own(cls, variables: Mapping[str, str] = os.environ) -> Place:
        """The place of this process."""
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
        _end(code)


def _end(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def strategy_of(run: Any) -> str:
    """The strategy of a run's definition; one made before the key existed lacks it."""
    return run.parameters.get("strategy", HOROVOD)


def variables_by_rank(names: Sequence[str]) -> dict[str, str]:
    """The variables of an attempt whose processes have their roles by rank. names: of variables that tell the rank."""
    return {BY_RANK: json.dumps([secrets.token_hex(16), list(names)])}


def of_run(run: Any, variables: Mapping[str, str] = os.environ) -> list[Role]:
    """The processes of the run, in the order of their numbers, as seen from one of them."""
    strategy, servers = strategy_of(run), run["servers"]
    if BY_RANK in variables:
        return list_roles_by_rank(strategy, run.ranks, servers, run.machine["ranks_per_node"])
    return list_roles(strategy, run.ranks, servers)
