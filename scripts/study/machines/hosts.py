"""The hosts of a run without a batch system: which host has which ranks, and how they reach each other."""

import re
from dataclasses import dataclass

# A network interface's name. Linux allows nearly all characters; Horovod writes the name unquoted on command lines.
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*")


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


def placement(ranks: int, slots: dict[str, int]) -> dict[str, int]:
    """{host: ranks on it} for the hosts in use: each host is filled before the next one is used.

    ranks: at most as many as there are slots.
    """
    placed: dict[str, int] = {}
    for host, most in slots.items():
        here = min(most, ranks - sum(placed.values()))
        if here > 0:
            placed[host] = here
    return placed


def of_servers(servers: int, placed: dict[str, int]) -> list[str]:
    """The host of each parameter server.

    Hosts without workers come first, as in han2019, section IV-C2: a worker beside a server has its weights without the
    network, and would make most of the steps. After them come the workers' hosts, from the last to the first; then it
    begins again.

    placed: {host: workers} of all hosts, in their order.
    """
    free = [host for host, workers in placed.items() if not workers]
    order = [*free, *(host for host, workers in reversed(placed.items()) if workers)]
    return [order[number % len(order)] for number in range(servers)]
