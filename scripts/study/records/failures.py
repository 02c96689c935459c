"""Failures of runs in words, for lists of them."""

from typing import Any

from study.core.wording import format_count
from study.experiment import programs

PLAIN = "error"  # the kind that says no more than that the run failed
MARK = "error: "  # before the message of a rank that reports its own error


def message(told: Any) -> Any:
    """The message of a failure without the mark, as it stands beside the word that it failed; nothing of none."""
    return told.removeprefix(MARK) if isinstance(told, str) else told


def cause(kind: str, told: Any) -> str:
    """What follows ``failed: ``; the kind only where it says more than that."""
    return str(message(told)) if kind == PLAIN else f"{kind}: {message(told)}"


def run_name(benchmark: str, scaling: str, gpus: int, loader: str) -> str:
    """``nt3, weak scaling, 2 ranks, npy``; without the loader of a command, which has none."""
    return ", ".join(
        [benchmark, f"{scaling} scaling", format_count(gpus, "rank"), *programs.list_given_values([loader])]
    )
