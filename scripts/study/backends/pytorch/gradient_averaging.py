"""The average of the ranks' gradients: DistributedDataParallel with a communication hook that also measures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn

from study.backends.pytorch.process_group import ProcessGroup
from study.communication.collectives import Collectives
from study.core.errors import StudyError


class Averaging:
    """A model whose gradients are averaged over the ranks while they are computed.

    Args:
        model: to wrap.
        ranks: that train together.
        compresses: whether 16 bits are sent per value.
        is_compiled: whether the model's passes are compiled, at the first call.

    Attributes:
        ready_ns: monotonic time at which the last gradients of this rank's last step were ready; 0 within a step in
            which none is ready yet.
    """

    def __init__(
        self,
        model: nn.Module,
        ranks: Collectives,
        compresses: bool,
        is_compiled: bool = False,
    ) -> None:
        self._compresses = compresses
        self._size, self._weight_count = ranks.size, sum(each.requires_grad for each in model.parameters())
        self.ready_ns = 0
        self._sent = set[int]()
        self._model: nn.Module = model
        if ranks.size > 1:
            device = cast(ProcessGroup, ranks).device
            averaged = nn.parallel.DistributedDataParallel(
                model,
                device_ids=[device.index] if device.type == "cuda" else None,
                forward_sync_buffers=False,  # moving statistics are each rank's own, as with Horovod
                init_sync=False,  # the ranks have the first one's weights already
                gradient_as_bucket_view=True,
            )
            averaged.register_comm_hook(None, lambda _, bucket: self._reduce_bucket(bucket))
            self._model = averaged
        self._forward: Callable[[Tensor], Tensor] = compile_model(self._model) if is_compiled else self._model

    def __call__(self, inputs: Tensor) -> Tensor:
        """The model's outputs."""
        return self._forward(inputs)

    def skip_average(self) -> contextlib.AbstractContextManager[Any]:
        """Add gradients up within the block, and send nothing."""
        if isinstance(self._model, nn.parallel.DistributedDataParallel):
            return self._model.no_sync()
        return contextlib.nullcontext()

    def begin_step(self) -> None:
        """Note that no gradient of the step is ready yet."""
        self.ready_ns = 0

    def end_step(self) -> None:
        """Note, after the backward pass, when the gradients were ready, also where none was sent."""
        self.ready_ns = self.ready_ns or time.monotonic_ns()

    def has_averaged(self) -> bool | None:
        """True if the gradients of all weights were sent; None on a single rank."""
        if self._size == 1:
            return None
        return len(self._sent) == self._weight_count

    def _reduce_bucket(self, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:
        """Start the allreduce of a bucket of gradients; its future gives the average, which DDP puts in their place."""
        own = bucket.buffer()
        if len(self._sent) < self._weight_count:
            self._sent.update(id(each) for each in bucket.parameters())
        self.ready_ns = time.monotonic_ns()
        sent = own.half() if self._compresses else own
        future = distributed.all_reduce(sent, async_op=True).get_future()
        return future.then(lambda done: self._finish_average(own, done.value()[0]))

    def _finish_average(self, own: Tensor, total: Tensor) -> Tensor:
        """Divide the sum of an allreduce by the number of ranks."""
        if self._compresses:
            own.copy_(total)
        return own.mul_(1 / self._size)  # multiplied, as Horovod does


def compile_model(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The compiled function of a model; compilation happens at its first call, for each shape of batch.

    The function raises `StudyError` where there is no compiler, or it fails.
    """
    function = torch.compile(model)

    def call(inputs: Tensor) -> Tensor:
        try:
            return cast(Tensor, function(inputs))
        except torch._dynamo.exc.TorchDynamoException as error:  # Inductor's are among them
            first = str(error).strip().splitlines()[0]
            raise StudyError(f"torch_compile: PyTorch cannot compile the model here: {first}") from error

    return call
