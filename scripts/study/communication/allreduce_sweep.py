"""The allreduce sweep: allreduces of several message sizes, timed on all ranks."""

import math
from collections.abc import Callable
from typing import Any

from study.communication.collectives import Collectives

SIZES = (4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20, 16 << 20)  # bytes
LONG_ENOUGH_S = 0.5  # for all repeats of one size
FEWEST, MOST = 3, 50  # repeats


def sweep(communicator: Collectives, progress: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """One entry per size: ``bytes``, and ``seconds`` of each repeat, of the slowest rank.

    All ranks must call. progress: is called after each size. The first allreduces of a size are not counted: Horovod
    negotiates a new tensor in them.
    """
    found = []
    for size in SIZES:
        first = max(communicator.gather(communicator.time_allreduce(size, 2)[-1]))
        repeats = min(MOST, max(FEWEST, math.ceil(LONG_ENOUGH_S / first)))
        everyone = communicator.gather(communicator.time_allreduce(size, repeats))
        progress()
        found.append({"bytes": size, "seconds": [max(each) for each in zip(*everyone, strict=True)]})
    return found
