"""A simulated accelerator: it takes the time that a device of a given rate would take, and no processor time.

It stands for the division of work of pittman2018, where the GPU trains and the processor prepares the samples, on a
machine without GPUs. Nothing is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Accelerator:
    """Computes on one batch at a time, at ``rate`` samples per second."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """clock, sleep: seconds; others than the real ones are for tests."""
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._busy_until = clock()
        self.idle_s = 0.0  # since it was made: waiting for batches

    def compute(self, samples: int) -> None:
        """Queue a batch, and return when the device begins with it: then the next batch can be fetched.

        Fetching overlaps with computing, as with a device that works on its own. Sleeping too long is made up for by
        the next batch.
        """
        now = self._clock()
        begin = max(now, self._busy_until)
        self.idle_s += begin - self._busy_until
        self._busy_until = begin + samples / self._rate
        if begin > now:
            self._sleep(begin - now)

    def finish(self) -> None:
        """Wait until the last batch is computed."""
        remaining_s = self._busy_until - self._clock()
        if remaining_s > 0:
            self._sleep(remaining_s)
