"""Ranks through Horovod, and the average of their gradients: the only module that uses Horovod for PyTorch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import horovod.torch as hvd
import torch
from horovod.torch import mpi_ops
from torch import Tensor, nn

from study.backends.pytorch import devices
from study.communication.collectives import RanksOnly
from study.communication.horovod import list_libraries
from study.experiment.definition import RunDefinition
from study.instruments import counters


class Horovod(RanksOnly):
    """A `study.communication.collectives.Collectives` through Horovod 0.28, which writes the timeline itself."""

    def __init__(self, run: RunDefinition) -> None:
        before = counters.list_threads()
        hvd.init()
        self.own_threads = counters.list_threads() - before
        compiled = mpi_ops._basics.MPI_LIB_CTYPES
        self.libraries = {"torch": torch.__version__, **list_libraries(hvd, compiled)}
        self.rank, self.size = hvd.rank(), hvd.size()
        self.local_rank, self.local_size = hvd.local_rank(), hvd.local_size()
        self.device = devices.choose_device(run, self.local_rank)

    def broadcast_tensor(self, name: str, tensor: Tensor) -> None:
        """Fill ``tensor`` on every rank with that of the first one."""
        with torch.no_grad():
            # Horovod sends contiguous tensors only; kernels of convolutions have channels_last.
            tensor.copy_(hvd.broadcast_(tensor.contiguous(), 0, name=name))

    def gather(self, value: Any) -> list[Any]:
        """Gather ``value`` of every rank, in their order."""
        return hvd.allgather_object(value)

    def build_allreduce(self, size: int) -> Callable[[], object]:
        """Make a function that sums a tensor of ``size`` bytes over all ranks, on the device of the gradients."""
        tensor = torch.zeros(size // 4, device=self.device)

        def allreduce() -> None:
            hvd.allreduce_(tensor, op=hvd.Sum, name=f"sweep.{size}")
            devices.synchronize(self.device)

        return allreduce

    def close(self) -> None:
        """Shut down together: a rank that leaves early breaks the others' collective operations."""
        hvd.shutdown()


class HorovodAveraging:
    """A model whose gradients Horovod averages, each as soon as it is there.

    As `study.backends.pytorch.gradient_averaging`.
    """

    def __init__(self, model: nn.Module, compresses: bool) -> None:
        """compresses: whether 16 bits are sent per value."""
        self._model = model
        self._compression = hvd.Compression.fp16 if compresses else hvd.Compression.none
        self._named = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self._sends, self.ready_ns = True, 0
        self._sent = set[str]()
        self._waiting: list[tuple[Tensor, int, Any]] = []  # gradient, Horovod's handle, how it was compressed
        for name, each in self._named.items():
            each.register_post_accumulate_grad_hook(lambda weight, name=name: self._send_gradient(name, weight))

    def __call__(self, inputs: Tensor) -> Tensor:
        """The model's outputs."""
        return self._model(inputs)

    @contextlib.contextmanager
    def skip_average(self) -> Iterator[None]:
        """Add gradients up within the block, and send nothing."""
        self._sends = False
        try:
            yield
        finally:
            self._sends = True

    def begin_step(self) -> None:
        """Do nothing: gradients are sent as they become ready."""

    def end_step(self) -> None:
        """Wait, after the backward pass, for the averages, and put them in place of the gradients."""
        for gradient, handle, context in self._waiting:
            average = self._compression.decompress(hvd.synchronize(handle), context)
            if average is not gradient:
                gradient.copy_(average)
        self._waiting.clear()

    def has_averaged(self) -> bool:
        """True if the gradients of all weights were sent."""
        return len(self._sent) == len(self._named)

    @torch.no_grad()
    def _send_gradient(self, name: str, weight: Tensor) -> None:
        """Start the average of a weight's gradient, unless gradients are only added up."""
        self.ready_ns = time.monotonic_ns()
        gradient = weight.grad
        if not self._sends or gradient is None:
            return
        self._sent.add(name)
        sent, context = self._compression.compress(gradient.contiguous())  # as in a broadcast
        self._waiting.append((gradient, hvd.allreduce_async_(sent, name=f"gradient.{name}", op=hvd.Average), context))
