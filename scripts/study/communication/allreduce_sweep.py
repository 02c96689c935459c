"""The allreduce sweep: allreduces of several message sizes, timed on all ranks."""

import math
import time
from collections.abc import Callable
from typing import Any

from study.communication.collectives import Collectives

SIZES = (4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20, 16 << 20)  # bytes
LONG_ENOUGH_S = 0.5  # for all repeats of one size
FEWEST, MOST = 3, 50  # repeats


def sweep(
    ranks: Collectives, progress: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.perf_counter
) -> list[dict[str, Any]]:
    """One entry per size: ``bytes``, and ``seconds`` of each repeat, of the slowest rank.

    All ranks must call. progress: is called after each size. clock: gives seconds; a test has its own.
    """
    found = []
    for size in SIZES:
        allreduce = ranks.allreduce_of(size)
        (first,) = _seconds(allreduce, 1, clock)
        repeats = min(MOST, max(FEWEST, math.ceil(LONG_ENOUGH_S / max(ranks.gather(first)))))
        everyone = ranks.gather(_seconds(allreduce, repeats, clock))
        progress()
        found.append({"bytes": size, "seconds": [max(each) for each in zip(*everyone, strict=True)]})
    return found


def _seconds(allreduce: Callable[[], object], repeats: int, clock: Callable[[], float]) -> list[float]:
    """The time of each of some allreduces, after one that is not counted.

    In that one, Horovod negotiates a new tensor, and the ranks wait for the last of them to come.
    """
    seconds = []
    for _ in range(1 + repeats):
        begun = clock()
        allreduce()
        seconds.append(clock() - begun)
    return seconds[1:]
