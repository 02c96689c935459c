"""How equal processes that a batch system's launcher has started become those of one of TensorFlow's strategies.

Each takes its role by its rank, reserves a port on its host, and leaves its address in a file in the run's directory.
The first process waits for the files of all others and writes one with the whole cluster, which the others wait for.
The names of the files belong to the attempt, so that files of an earlier one are never read.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import socket
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from study.communication.roles import BY_RANK, Place, of_run
from study.core.boot import boot_id
from study.core.errors import StudyError
from study.core.files import read_json, write_json
from study.experiment.definition import RunDefinition
from study.instruments import heartbeats
from study.machines import probe
from study.machines.run_layout import IDLE, Role

LOOK_S = 0.1
NAMED = 5  # processes that a message names
_held: list[socket.socket] = []  # until this process ends: TensorFlow's server and the channel listen on their ports


def join(run: RunDefinition, folder: Path, variables: MutableMapping[str, str] = os.environ) -> bool:
    """Set the variables of this process as `study.launch.processes` does; False for an idle one, which has none.

    Args:
        run: with one of TensorFlow's strategies.
        folder: of the ranks' files.
        variables: those of this process, which have its rank.

    Raises:
        StudyError: the launcher gave no rank, a process did not come in time, or the hosts have no network in common.
    """
    token, names = json.loads(variables[BY_RANK])
    processes = of_run(run, variables)
    number = own_rank(names, variables, len(processes))
    if processes[number].kind == IDLE:
        return False
    limit_s = heartbeats.read_limit_s() / 2  # the launch would end the run without saying what was waited for
    _held.extend(probe.hold_ports(2))
    write_json(_file(folder, token, number), _own_facts(probe.list_ports(_held[-2:])))
    if number == 0:
        taking_part = [each for each, role in enumerate(processes) if role.kind != IDLE]
        found = _gathered(folder, token, taking_part, processes, limit_s)
        write_json(_file(folder, token), cluster(found, len(processes), token, run.machine.get("interface")))
    made = _awaited(_file(folder, token), limit_s, f"{processes[0]} (process 0) to name the processes of the run")
    place = Place(number, made["size"], made["channel"], token, tuple(made["hosts"]))
    variables.update(place.variables(processes, made["addresses"]))
    if made["interfaces"][number]:
        variables["NCCL_SOCKET_IFNAME"] = made["interfaces"][number]
    return True


def own_rank(names: list[str], variables: Mapping[str, str], number: int) -> int:
    """The rank of this process. names: of the launcher's variables that may tell it. number: of processes.

    Raises:
        StudyError: none of them is set, or it is no rank of the run.
    """
    name = next((each for each in names if each in variables), None)
    if name is None:
        raise StudyError(
            f"the launcher has set none of {', '.join(names)}: a process of this strategy has its role by its rank; "
            "start the run through the launcher of the machine's file"
        )
    try:
        rank = int(variables[name])
    except ValueError:
        rank = -1
    if not 0 <= rank < number:
        raise StudyError(f"{name} is {variables[name]!r}, but the run has the ranks 0 to {number - 1}")
    return rank


def _file(folder: Path, token: str, number: int | None = None) -> Path:
    """Of one process, or of the cluster; its name has the first part of the token, which is also the channel's key."""
    return folder / f"cluster-{token[:8]}{'' if number is None else f'-{number:05d}'}.json"


def _own_facts(ports: list[int]) -> dict[str, Any]:
    """What the other processes must know of this one. ports: TensorFlow's, and that of the channel."""
    name = socket.gethostname()
    try:
        resolved: str | None = socket.gethostbyname(name)
    except OSError:
        resolved = None
    network = Path("/proc/self/ns/net").stat().st_ino  # containers of one host may have networks of their own
    return {
        "name": name,
        "host": f"{name} {boot_id()} {network}",
        "interfaces": [[each, *address] for each, address in probe.list_interfaces()],
        "resolved": resolved,
        "ports": ports,
    }


def _gathered(
    folder: Path, token: str, numbers: list[int], processes: list[Role], limit_s: float
) -> dict[int, dict[str, Any]]:
    """The facts of each process, as soon as all have left theirs."""
    missing = list(numbers)

    def is_whole() -> bool:
        missing[:] = [each for each in missing if not _file(folder, token, each).exists()]
        return not missing

    def what() -> str:
        named = ", ".join(f"{processes[each]} (process {each})" for each in missing[:NAMED])
        more = f" and {len(missing) - NAMED} others" if len(missing) > NAMED else ""
        return f"{named}{more}; {len(numbers) - len(missing)} of {len(numbers)} processes are there"

    _wait(is_whole, limit_s, what)
    return {each: read_json(_file(folder, token, each)) for each in numbers}


def _awaited(path: Path, limit_s: float, what: str) -> dict[str, Any]:
    """The content of a file of another process, as soon as it is there."""
    _wait(path.exists, limit_s, lambda: what)
    found: dict[str, Any] = read_json(path)
    return found


def _wait(is_there: Callable[[], bool], limit_s: float, what: Callable[[], str]) -> None:
    deadline = time.monotonic() + limit_s
    while not is_there():
        if time.monotonic() > deadline:
            raise StudyError(
                f"waited {limit_s:g} s for {what()}. Has the launcher started all processes, and do all nodes see the "
                "run's directory?"
            )
        time.sleep(LOOK_S)


def cluster(facts: dict[int, dict[str, Any]], number: int, token: str, interface: str | None) -> dict[str, Any]:
    """What `join` sets: the address and the host of each process, and the channel of all.

    Args:
        facts: {number of a process: its facts}, without idle ones.
        number: of processes, with idle ones.
        token: of the attempt.
        interface: through which the hosts reach each other; None to take a network that all have.

    Raises:
        StudyError: a host has no such interface, or they have no network in common.
    """
    of_hosts = {each["host"]: each for each in facts.values()}
    if len(of_hosts) == 1:  # no TCP for the channel: then its bytes are none of the run's
        reached = dict.fromkeys(of_hosts, ("127.0.0.1", ""))
        # All users can see the name, so it has nothing of the key.
        channel = f"study-{hashlib.sha256(token.encode()).hexdigest()[:16]}"
    else:
        reached = _of_interface(of_hosts, interface) if interface else _in_common(of_hosts)
        channel = f"{reached[facts[0]['host']][0]}:{facts[0]['ports'][1]}"
    addresses, hosts, interfaces = [""] * number, [""] * number, [""] * number
    for each, told in facts.items():
        address, interfaces[each] = reached[told["host"]]
        addresses[each], hosts[each] = f"{address}:{told['ports'][0]}", told["host"]
    return {
        "size": len(facts),
        "channel": channel,
        "hosts": hosts,
        "addresses": addresses,
        "interfaces": interfaces,
    }


def _of_interface(hosts: dict[str, dict[str, Any]], interface: str) -> dict[str, tuple[str, str]]:
    """{host: (its address, the interface)}."""
    found = {}
    for host, told in hosts.items():
        address = next((each for name, each, _ in told["interfaces"] if name == interface), None)
        if address is None:
            raise StudyError(
                f"{told['name']}: has no interface {interface} with an IPv4 address, but {_shown(told)}; see interface "
                "in the machine's file"
            )
        found[host] = address, interface
    return found


def _in_common(hosts: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """{host: (address, interface)} in the first network that connects all hosts; if possible that of the host names."""
    first, *others = hosts.values()
    for network in sorted(_networks(first), key=lambda each: first["resolved"] not in _addresses(first, each)):
        reached = {host: _addresses(told, network) for host, told in hosts.items()}
        found = {host: next(iter(each.items()), ("", "")) for host, each in reached.items()}
        if len({address for address, _ in found.values()} - {""}) == len(hosts):  # not a container's bridge
            return found
    names = {host: told["resolved"] or "127." for host, told in hosts.items()}
    if len(set(names.values())) == len(hosts) and not any(each.startswith("127.") for each in names.values()):
        return {host: (address, "") for host, address in names.items()}
    raise StudyError(
        f"{first['name']} ({_shown(first)}) has no network in common with "
        + " and ".join(f"{told['name']} ({_shown(told)})" for told in others[:1])
        + "; name the network's interface under interface in the machine's file"
    )


def _networks(told: dict[str, Any]) -> list[ipaddress.IPv4Network]:
    found = [ipaddress.IPv4Network((address, mask), strict=False) for _, address, mask in told["interfaces"]]
    return [each for each in found if not each.is_loopback]


def _addresses(told: dict[str, Any], network: ipaddress.IPv4Network) -> dict[str, str]:
    """{address: interface} of a host in a network."""
    return {
        address: name
        for name, address, mask in told["interfaces"]
        if ipaddress.IPv4Network((address, mask), strict=False) == network
    }


def _shown(told: dict[str, Any]) -> str:
    return ", ".join(f"{name} ({address})" for name, address, _ in told["interfaces"])
