"""The roles of a run's processes under TensorFlow's strategies, and the variables that tell them."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from study.core.errors import exit_with_message

HOROVOD, PARAMETER_SERVER, MIRRORED = "horovod", "parameter_server", "multi_worker_mirrored"
CHIEF, WORKER, SERVER = "chief", "worker", "server"
JOBS = {CHIEF: "chief", WORKER: "worker", SERVER: "ps"}  # TensorFlow's names in TF_CONFIG
CHIEF_ENDED = 75  # exit code of a worker or server that ends because the chief has ended
PLACES = "STUDY_PROCESS"  # variable, JSON: number of the process, number of processes, name and key of their channel


@dataclass(frozen=True)
class Role:
    """What one process of a run is: the chief, worker ``index`` or server ``index``."""

    kind: str
    index: int

    def __str__(self) -> str:
        return self.kind if self.kind == CHIEF else f"{self.kind} {self.index}"


@dataclass(frozen=True)
class Place:
    """A process among those of its run.

    number: from 0. channel: of `study.training.channel`, a name on one host, ``host:port`` between hosts. key: of
    the run, by which its processes know each other.
    """

    number: int
    size: int
    channel: str
    key: str

    def variables(self, roles: list[Role], addresses: list[str]) -> dict[str, str]:
        """The environment variables of this process. addresses: host:port of each process, in the order of roles."""
        cluster: dict[str, list[str]] = {}
        for role, address in zip(roles, addresses, strict=True):
            cluster.setdefault(JOBS[role.kind], []).append(address)
        own = roles[self.number]
        task = {"type": JOBS[own.kind], "index": own.index}
        return {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            "GRPC_FAIL_FAST": "use_caller",  # a lost worker is told to the chief, see TensorFlow's guide
            # gRPC would take the shell's web proxy, even on this host
            "no_grpc_proxy": ",".join(dict.fromkeys(address.partition(":")[0] for address in addresses)),
            PLACES: json.dumps([self.number, self.size, self.channel, self.key]),
        }

    @classmethod
    def own(cls, variables: Mapping[str, str] = os.environ) -> Place:
        """The place of this process."""
        return cls(*json.loads(variables[PLACES]))


def run_process(main: Callable[[], object]) -> None:
    """Run a script's ``main`` as `exit_with_message` does, then end the process at once.

    When Python ends, TensorFlow takes a second to take itself down; under its strategies it also waits for processes
    that may have ended: for seconds, or for ever. A rank of Horovod that failed ends as usual, so that Horovod tells
    the others; so does a traced one, whose timeline Horovod closes.
    """
    if PLACES not in os.environ:
        exit_with_message(main)
        if "HOROVOD_TIMELINE" not in os.environ:
            _end(0)
        return
    code = 0
    try:
        exit_with_message(main)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    _end(code)


def _end(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def strategy_of(run: Any) -> str:
    """The strategy of a run's definition; one made before the key existed lacks it."""
    return run.parameters.get("strategy", HOROVOD)


def roles(strategy: str, workers: int, servers: int) -> list[Role]:
    """The processes of a run in their order: of a parameter server the chief, the workers, then the servers."""
    chiefs = [Role(CHIEF, 0)] if strategy == PARAMETER_SERVER else []
    return [*chiefs, *(Role(WORKER, n) for n in range(workers)), *(Role(SERVER, n) for n in range(servers))]
