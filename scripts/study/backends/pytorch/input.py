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
Chosen = tuple[Positions, Changes | None]


class Input:
    """Batches of one source.

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

    def batches(self, chosen: Iterable[Chosen]) -> Iterator[Batch]:
        """The batches of these positions, in their order."""
        if not self._prefetched:
            yield from map(self.made, chosen)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "batches")
        waiting: collections.deque[Future[Batch]] = collections.deque()
        for each in chosen:
            waiting.append(self._pool.submit(self.made, each))
            if len(waiting) > max(self._prefetched, self._threads - 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def made(self, chosen: Chosen) -> Batch:
        """One batch."""
        x, y = self._samples.batch(*chosen)
        inputs = torch.from_numpy(x).to(self._device, non_blocking=True)
        return inputs, inputs if y is x else torch.from_numpy(y).to(self._device, non_blocking=True)


def in_batches(positions: Positions, size: int, changes: Changes | None = None) -> Iterator[Chosen]:
    """Positions and random changes, if there are any, of each batch; the last one may be smaller."""
    for first in range(0, len(positions), size):
        part = slice(first, first + size)
        yield positions[part], None if changes is None or not changes.shape[-1] else changes[part]


def in_order(samples: SampleSource, size: int) -> Iterator[Chosen]:
    """All samples as they are."""
    return in_batches(np.arange(len(samples)), size)


class InputMeasures:
    """How long one rank's training waits for its batches; one epoch after the other."""

    def __init__(self) -> None:
        self._waited_ns = 0

    def measured(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches."""
        source = iter(batches)
        while True:
            begun = time.monotonic_ns()
            batch = next(source, None)
            self._waited_ns += time.monotonic_ns() - begun
            if batch is None:
                return
            yield batch

    def end_epoch(self, steps: int) -> dict[str, float]:
        """``input_wait_per_step_s`` of an epoch of so many steps; the next epoch starts from zero."""
        waited_ns, self._waited_ns = self._waited_ns, 0
        return {"input_wait_per_step_s": waited_ns / 1e9 / steps}
