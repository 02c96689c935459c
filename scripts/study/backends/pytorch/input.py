"""Sample sources as batches of tensors, which threads make ahead of the training step."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from study.data.order import Positions
from study.data.samples import Changes, SampleSource

Batch = tuple[Tensor, Tensor]
BatchPositions = tuple[Positions, Changes | None]


class Input:
    """Makes the batches of one sample source.

    Args:
        samples: of all batches.
        device: on which the tensors are.
        prefetched: batches that are made ahead; 0 makes each when it is asked for.
        at_once: batches that are made at once; 0 for the source's own number.
    """

    def __init__(self, samples: SampleSource, device: torch.device, prefetched: int = 1, at_once: int = 0) -> None:
        self._samples, self._device, self._prefetched = samples, device, prefetched
        self._threads = at_once or samples.threads or 1
        self._pool: ThreadPoolExecutor | None = None

    def make_batches(self, chosen: Iterable[BatchPositions]) -> Iterator[Batch]:
        """Make the batches of these positions, in their order."""
        if not self._prefetched:
            yield from map(self.make_batch, chosen)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "batches")
        waiting: collections.deque[Future[Batch]] = collections.deque()
        for each in chosen:
            waiting.append(self._pool.submit(self.make_batch, each))
            if len(waiting) > max(self._prefetched, self._threads - 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def make_batch(self, chosen: BatchPositions) -> Batch:
        """Make one batch of tensors."""
        x, y = self._samples.batch(*chosen)
        inputs = torch.from_numpy(x).to(self._device, non_blocking=True)
        return inputs, inputs if y is x else torch.from_numpy(y).to(self._device, non_blocking=True)


def split_into_batches(positions: Positions, size: int, changes: Changes | None = None) -> Iterator[BatchPositions]:
    """Split positions, and random changes if there are any, into those of batches; the last one may be smaller."""
    for first in range(0, len(positions), size):
        part = slice(first, first + size)
        yield positions[part], None if changes is None or not changes.shape[-1] else changes[part]


def split_in_order(samples: SampleSource, size: int) -> Iterator[BatchPositions]:
    """Split the positions of all samples, in their stored order, into those of batches."""
    return split_into_batches(np.arange(len(samples)), size)


class InputMeasures:
    """Measures how long one rank's training waits for its batches; one epoch after the other."""

    def __init__(self) -> None:
        self._waited_ns = 0

    def measure_waits(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches, and add up the time waited for each."""
        source = iter(batches)
        while True:
            begun = time.monotonic_ns()
            batch = next(source, None)
            self._waited_ns += time.monotonic_ns() - begun
            if batch is None:
                return
            yield batch

    def end_epoch(self, steps: int) -> dict[str, float]:
        """End an epoch: its mean wait for batches, ``input_wait_per_step_s``; the next epoch starts from zero."""
        waited_ns, self._waited_ns = self._waited_ns, 0
        return {"input_wait_per_step_s": waited_ns / 1e9 / steps}
