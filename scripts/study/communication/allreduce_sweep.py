"""The allreduce sweep: allreduces of several message sizes, timed on all ranks."""

import math
import time
from collections.abc import Callable
from typing import Any

from study.communication.collectives import Collectives

SIZES = (4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20, 16 << 20)  # bytes
LONG_ENOUGH_S = 0.5  # for all repeats of one size
FEWEST, MOST = 3, 50  # repeats


def time_allreduces(
    ranks: Collectives, progress: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.perf_counter
) -> list[dict[str, Any]]:
    """Time allreduces of `SIZES`: for each its ``bytes``, and ``seconds`` of each repeat, of the slowest rank.

    All ranks must call. progress: is called after each size. clock: gives seconds; a test has its own.
    """
    measurements = []
    for size in SIZES:
        allreduce = ranks.build_allreduce(size)
        (first,) = _time_repeats(allreduce, 1, clock)
        repeats = min(MOST, max(FEWEST, math.ceil(LONG_ENOUGH_S / max(ranks.gather(first)))))
        everyone = ranks.gather(_time_repeats(allreduce, repeats, clock))
        progress()
        measurements.append({"bytes": size, "seconds": [max(each) for each in zip(*everyone, strict=True)]})
    return measurements


def _time_repeats(allreduce: Callable[[], object], repeats: int, clock: Callable[[], float]) -> list[float]:
    """Seconds of each of ``repeats`` allreduces, after one that is not counted.

    In that one, Horovod negotiates a new tensor, and the ranks wait for the last of them to come.
    """
    seconds = []
    for _ in range(1 + repeats):
        begun = clock()
        allreduce()
        seconds.append(clock() - begun)
    return seconds[1:]
