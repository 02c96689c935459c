"""The walltime of a batch job, and how many nodes a job must have for it by the rules of a queue."""

import math
from typing import Any

MARGIN_MIN = 5  # added to a run's time limit for its job's walltime: to start, to end, and to write the outcome
LARGEST_GROWTH = 2  # times the queue's smallest job: in a larger one, most nodes would be idle


def job_minutes(limit_s: float) -> int:
    """Walltime (minutes) of the batch job of a run that may take ``limit_s`` seconds."""
    return math.ceil(limit_s / 60) + MARGIN_MIN


def limit_s(minutes: float) -> float:
    """The time limit (s) of a run in a job of so many minutes."""
    return 60.0 * (minutes - MARGIN_MIN)


def smallest_nodes(machine: dict[str, Any]) -> int:
    """The fewest nodes of a job; 1 without a rule."""
    smallest: int = machine.get("queue", {}).get("smallest_nodes", 1)
    return smallest


def longest_minutes(nodes: int, machine: dict[str, Any]) -> int | None:
    """The longest walltime (minutes) of a job on so many nodes; None without a rule."""
    rules = machine.get("queue", {}).get("longest_minutes", [])
    applicable = [rule for rule in rules if rule["from_nodes"] <= nodes]  # in whatever order the file lists them
    return max(applicable, key=lambda rule: rule["from_nodes"])["minutes"] if applicable else None


def longest_s(nodes: int, machine: dict[str, Any]) -> float:
    """The longest time limit (s) of a run in a job on so many nodes; infinite without a rule."""
    longest = longest_minutes(nodes, machine)
    return limit_s(longest) if longest else math.inf


def job_nodes(nodes: int, minutes: int, machine: dict[str, Any]) -> int | None:
    """The fewest nodes, at least ``nodes``, of a job that may have so many minutes; None if no job may.

    Only what is too small for a job of its own gets more nodes than it needs, and not more than `LARGEST_GROWTH` times
    the smallest job.
    """
    smallest = smallest_nodes(machine)
    own = max(nodes, smallest)
    larger = [rule["from_nodes"] for rule in machine.get("queue", {}).get("longest_minutes", [])]
    most = max(own, min(LARGEST_GROWTH * smallest, machine["nodes"])) if smallest > 1 else own
    for size in sorted({own, *(each for each in larger if own < each <= most)}):
        longest = longest_minutes(size, machine)
        if longest is None or minutes <= longest:
            return size
    return None
