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

from study.communication.roles import BY_RANK, Place, list_run_roles
from study.core.boot import read_boot_id
from study.core.errors import StudyError
from study.core.files import read_json, write_json
from study.experiment.definition import RunDefinition
from study.instruments import heartbeats
from study.machines import probe
from study.machines.run_layout import IDLE, Role

LOOK_S = 0.1
NAMED = 5  # processes that a message names
_held: list[socket.socket] = []  # until this process ends: TensorFlow's server and the channel listen on their ports


def join_run(run: RunDefinition, folder: Path, variables: MutableMapping[str, str] = os.environ) -> bool:
    """Find out this process's role and the addresses of all, and set its variables; False for an idle process.

    The variables are those that `study.launch.processes` sets; an idle process gets none.

    Args:
        run: with one of TensorFlow's strategies.
        folder: of the ranks' files.
        variables: those of this process, which have its rank.

    Raises:
        StudyError: the launcher gave no rank, a process did not come in time, or the hosts have no network in common.
    """
    token, names = json.loads(variables[BY_RANK])
    processes = list_run_roles(run, variables)
    number = read_own_rank(names, variables, len(processes))
    if processes[number].kind == IDLE:
        return False
    limit_s = heartbeats.read_limit_s() / 2  # the launch would end the run without saying what was waited for
    _held.extend(probe.hold_ports(2))
    write_json(_locate_facts(folder, token, number), _describe_process(probe.list_ports(_held[-2:])))
    if number == 0:
        taking_part = [process for process, role in enumerate(processes) if role.kind != IDLE]
        facts = _gather_facts(folder, token, taking_part, processes, limit_s)
        cluster = describe_cluster(facts, len(processes), token, run.machine.get("interface"))
        write_json(_locate_facts(folder, token), cluster)
    awaited = f"{processes[0]} (process 0) to name the processes of the run"
    cluster = _await_file(_locate_facts(folder, token), limit_s, awaited)
    place = Place(number, cluster["size"], cluster["channel"], token, tuple(cluster["hosts"]))
    variables.update(place.build_variables(processes, cluster["addresses"]))
    if cluster["interfaces"][number]:
        variables["NCCL_SOCKET_IFNAME"] = cluster["interfaces"][number]
    return True


def read_own_rank(names: list[str], variables: Mapping[str, str], number: int) -> int:
    """Read the rank of this process from the launcher's variables. names: of these. number: of processes.

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


def _locate_facts(folder: Path, token: str, number: int | None = None) -> Path:
    """Path of the file with a process's facts, or with the cluster's if ``number`` is None.

    Its name has only the first part of the token, which is also the channel's key.
    """
    return folder / f"cluster-{token[:8]}{'' if number is None else f'-{number:05d}'}.json"


def _describe_process(ports: list[int]) -> dict[str, Any]:
    """Host, interfaces and ports of this process, for the others. ports: TensorFlow's, and that of the channel."""
    name = socket.gethostname()
    try:
        resolved: str | None = socket.gethostbyname(name)
    except OSError:
        resolved = None
    network = Path("/proc/self/ns/net").stat().st_ino  # containers of one host may have networks of their own
    return {
        "name": name,
        "host": f"{name} {read_boot_id()} {network}",
        "interfaces": [[each, *address] for each, address in probe.list_interfaces()],
        "resolved": resolved,
        "ports": ports,
    }


def _gather_facts(
    folder: Path, token: str, numbers: list[int], processes: list[Role], limit_s: float
) -> dict[int, dict[str, Any]]:
    """Wait until all processes have left their facts, and read them, {number: facts}."""
    missing = list(numbers)

    def is_whole() -> bool:
        missing[:] = [each for each in missing if not _locate_facts(folder, token, each).exists()]
        return not missing

    def describe_missing() -> str:
        named = ", ".join(f"{processes[each]} (process {each})" for each in missing[:NAMED])
        further = f" and {len(missing) - NAMED} others" if len(missing) > NAMED else ""
        return f"{named}{further}; {len(numbers) - len(missing)} of {len(numbers)} processes are there"

    _wait(is_whole, limit_s, describe_missing)
    return {each: read_json(_locate_facts(folder, token, each)) for each in numbers}


def _await_file(path: Path, limit_s: float, awaited: str) -> dict[str, Any]:
    """Wait for a file of another process, and read it. awaited: what it is, for the message at the limit."""
    _wait(path.exists, limit_s, lambda: awaited)
    content: dict[str, Any] = read_json(path)
    return content


def _wait(is_there: Callable[[], bool], limit_s: float, describe_missing: Callable[[], str]) -> None:
    """Wait until ``is_there()``; raises `StudyError` after ``limit_s`` with what is missing."""
    deadline = time.monotonic() + limit_s
    while not is_there():
        if time.monotonic() > deadline:
            raise StudyError(
                f"waited {limit_s:g} s for {describe_missing()}. Has the launcher started all processes, and do all "
                "nodes see the run's directory?"
            )
        time.sleep(LOOK_S)


def describe_cluster(
    facts: dict[int, dict[str, Any]], number: int, token: str, interface: str | None
) -> dict[str, Any]:
    """The content of the cluster's file: the address and host of each process, and the channel of all.

    Args:
        facts: {number of a process: its facts}, without idle ones.
        number: of processes, with idle ones.
        token: of the attempt.
        interface: through which the hosts reach each other; None to take a network that all have.

    Raises:
        StudyError: a host has no such interface, or they have no network in common.
    """
    hosts_facts = {process["host"]: process for process in facts.values()}
    if len(hosts_facts) == 1:  # no TCP for the channel: then its bytes are none of the run's
        host_addresses = dict.fromkeys(hosts_facts, ("127.0.0.1", ""))
        # All users can see the name, so it has nothing of the key.
        channel = f"study-{hashlib.sha256(token.encode()).hexdigest()[:16]}"
    else:
        host_addresses = _find_addresses_at(hosts_facts, interface) if interface else _find_common(hosts_facts)
        channel = f"{host_addresses[facts[0]['host']][0]}:{facts[0]['ports'][1]}"
    addresses, hosts, interfaces = [""] * number, [""] * number, [""] * number
    for process, host_facts in facts.items():
        address, interfaces[process] = host_addresses[host_facts["host"]]
        addresses[process], hosts[process] = f"{address}:{host_facts['ports'][0]}", host_facts["host"]
    return {
        "size": len(facts),
        "channel": channel,
        "hosts": hosts,
        "addresses": addresses,
        "interfaces": interfaces,
    }


def _find_addresses_at(hosts: dict[str, dict[str, Any]], interface: str) -> dict[str, tuple[str, str]]:
    """The address of each host at an interface, {host: (address, interface)}; `StudyError` if a host lacks it."""
    addresses = {}
    for host, facts in hosts.items():
        address = next((each for name, each, _ in facts["interfaces"] if name == interface), None)
        if address is None:
            raise StudyError(
                f"{facts['name']}: has no interface {interface} with an IPv4 address, but {_format_interfaces(facts)}; "
                "see interface in the machine's file"
            )
        addresses[host] = address, interface
    return addresses


def _find_common(hosts: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """The address of each host in the first network that all have, {host: (address, interface)}.

    The network of the hosts' names comes first. Raises `StudyError` if they have none in common.
    """
    first, *others = hosts.values()
    for network in sorted(_list_networks(first), key=lambda net: first["resolved"] not in _find_addresses(first, net)):
        host_addresses = {host: _find_addresses(facts, network) for host, facts in hosts.items()}
        addresses = {host: next(iter(each.items()), ("", "")) for host, each in host_addresses.items()}
        if len({address for address, _ in addresses.values()} - {""}) == len(hosts):  # not a container's bridge
            return addresses
    names = {host: facts["resolved"] or "127." for host, facts in hosts.items()}
    if len(set(names.values())) == len(hosts) and not any(each.startswith("127.") for each in names.values()):
        return {host: (address, "") for host, address in names.items()}
    raise StudyError(
        f"{first['name']} ({_format_interfaces(first)}) has no network in common with "
        + " and ".join(f"{facts['name']} ({_format_interfaces(facts)})" for facts in others[:1])
        + "; name the network's interface under interface in the machine's file"
    )


def _list_networks(facts: dict[str, Any]) -> list[ipaddress.IPv4Network]:
    """The networks of a host's interfaces, without loopback."""
    networks = [ipaddress.IPv4Network((address, mask), strict=False) for _, address, mask in facts["interfaces"]]
    return [each for each in networks if not each.is_loopback]


def _find_addresses(facts: dict[str, Any], network: ipaddress.IPv4Network) -> dict[str, str]:
    """A host's addresses in a network, {address: interface}."""
    return {
        address: name
        for name, address, mask in facts["interfaces"]
        if ipaddress.IPv4Network((address, mask), strict=False) == network
    }


def _format_interfaces(facts: dict[str, Any]) -> str:
    """A host's interfaces in messages: ``eth0 (10.0.0.1), ...``."""
    return ", ".join(f"{name} ({address})" for name, address, _ in facts["interfaces"])
