"""The average of the ranks' gradients: DistributedDataParallel with a communication hook that also measures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn

from study.backends.pytorch.compiled import compiled
from study.backends.pytorch.process_group import ProcessGroup
from study.backends.pytorch.timeline import Operation, Timeline
from study.communication.collectives import Collectives


class Averaging:
    """A model whose gradients are averaged over the ranks while they are computed.

    Args:
        model: whose outputs it gives.
        ranks: that train together.
        compresses: whether 16 bits are sent per value.
        timeline: to which each allreduce is added, of a traced run.
        is_compiled: whether its passes are compiled, at the first call.

    Attributes:
        ready_ns: monotonic time at which the last gradients of this rank's last step were ready; 0 within a step in
            which none is ready yet.
    """

    def __init__(
        self,
        model: nn.Module,
        ranks: Collectives,
        compresses: bool,
        timeline: Timeline | None = None,
        is_compiled: bool = False,
    ) -> None:
        self._compresses, self._timeline = compresses, timeline
        self._size, self._number = ranks.size, sum(each.requires_grad for each in model.parameters())
        self.ready_ns = 0
        self._seen = set[int]()
        self._averaged: nn.Module = model
        if ranks.size > 1:
            device = cast(ProcessGroup, ranks).device
            averaged = nn.parallel.DistributedDataParallel(
                model,
                device_ids=[device.index] if device.type == "cuda" else None,
                forward_sync_buffers=False,  # moving statistics are each rank's own, as with Horovod
                init_sync=False,  # the ranks have the first one's weights already
                gradient_as_bucket_view=True,
            )
            averaged.register_comm_hook(None, lambda _, bucket: self._reduce(bucket))
            self._averaged = averaged
        self._called: Callable[[Tensor], Tensor] = compiled(self._averaged) if is_compiled else self._averaged

    def __call__(self, inputs: Tensor) -> Tensor:
        """The model's outputs."""
        return self._called(inputs)

    def without_average(self) -> contextlib.AbstractContextManager[Any]:
        """A block in which gradients are added up, and nothing is sent."""
        if isinstance(self._averaged, nn.parallel.DistributedDataParallel):
            return self._averaged.no_sync()
        return contextlib.nullcontext()

    def begin_step(self) -> None:
        """Before a step."""
        self.ready_ns = 0

    def end_step(self) -> None:
        """After the backward pass, which has made all gradients also where none was sent."""
        self.ready_ns = self.ready_ns or time.monotonic_ns()

    def has_averaged(self) -> bool | None:
        """Whether the gradients of all weights were sent; None on a single rank."""
        if self._size == 1:
            return None
        return len(self._seen) == self._number

    def _reduce(self, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:
        """The average of a bucket of gradients, which DDP puts into their place."""
        own = bucket.buffer()
        if len(self._seen) < self._number:
            self._seen.update(id(each) for each in bucket.parameters())
        self.ready_ns = ready = time.monotonic_ns()
        sent = own.half() if self._compresses else own
        future = distributed.all_reduce(sent, async_op=True).get_future()
        return future.then(lambda done: self._average(bucket, own, done.value()[0], ready))

    def _average(self, bucket: distributed.GradBucket, own: Tensor, total: Tensor, ready: int) -> Tensor:
        if self._timeline:
            self._timeline.add(Operation.done("ALLREDUCE", f"bucket {bucket.index()}", total, ready))
        if self._compresses:
            own.copy_(total)
        return own.mul_(1 / self._size)  # multiplied, as Horovod does
