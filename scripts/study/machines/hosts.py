"""The hosts of a run without a batch system: which host has which ranks, and how they reach each other."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Links:
    """How the hosts of a run reach each other.

    interfaces: {host: its network interface}. here: the launching host's interface. network: in CIDR notation.
    """

    interfaces: dict[str, str]
    here: str
    network: str


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
