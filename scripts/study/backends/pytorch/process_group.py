"""Ranks through torch.distributed: Gloo, and NCCL for gradients on GPUs."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed

from study.backends.pytorch import devices
from study.communication.collectives import RanksOnly
from study.communication.roles import Place
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition
from study.instruments import counters, heartbeats

# A rank may wait for another one as long as the watchdog sees progress, which ends the run otherwise.
WAIT_LIMIT = datetime.timedelta(days=30)
ENDED_MESSAGES = (
    "Connection closed",
    "Connection reset",
    "Broken pipe",
    "Socket closed",
    "recv failed",
    "ncclRemoteError",
)


class ProcessGroup(RanksOnly):
    """A `study.communication.collectives.Collectives`; the default process group of this process."""

    def __init__(self, run: RunDefinition) -> None:
        """Wait for the other ranks.

        Raises:
            StudyError: they did not come within half of the stall limit.
        """
        place, before = Place.from_environment(), counters.list_threads()
        self.rank, self.size = place.number, place.size
        self.local_rank, self.local_size = (
            place.count_earlier_on_host(self.rank),
            place.hosts.count(place.hosts[self.rank]),
        )
        self.device = devices.choose_device(run, self.local_rank)
        _choose_interface(len(set(place.hosts)))
        _make_default_group(place, "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo")
        self.own_threads = counters.list_threads() - before
        self.libraries = _list_libraries(self.device)

    def broadcast_tensor(self, name: str, tensor: Tensor) -> None:
        """Fill ``tensor`` on every rank with that of the first one."""
        with report_ended_ranks():
            distributed.broadcast(tensor, 0)

    def gather(self, value: Any) -> list[Any]:
        """Gather ``value`` of every rank, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with report_ended_ranks():
            distributed.all_gather_object(values, value)
        return values

    def build_allreduce(self, size: int) -> Callable[[], object]:
        """Make a function that sums a tensor of ``size`` bytes over all ranks, on the device of the gradients."""
        tensor = torch.zeros(size // 4, device=self.device)

        def allreduce() -> None:
            with report_ended_ranks():
                distributed.all_reduce(tensor)
            devices.synchronize(self.device)

        return allreduce

    def close(self) -> None:
        """Leave together with the other ranks."""
        self.gather(None)
        distributed.destroy_process_group()


@contextlib.contextmanager
def report_ended_ranks() -> Iterator[None]:
    """Raise the error that follows from another rank's end, within the block, as one line.

    Raises:
        StudyError: another rank has ended.
    """
    try:
        yield
    except (RuntimeError, distributed.DistError) as error:
        if any(words in str(error) for words in ENDED_MESSAGES):
            raise StudyError("another rank has ended") from None
        raise


def _choose_interface(hosts: int) -> None:
    """Set Gloo's network interface.

    By itself it takes the network of the host's name, which need not reach the other hosts. Between hosts without a
    known interface it is left to do so.
    """
    between = os.environ.get("NCCL_SOCKET_IFNAME") if hosts > 1 else "lo"
    if interface := os.environ.get("GLOO_SOCKET_IFNAME") or between:
        os.environ["GLOO_SOCKET_IFNAME"] = interface


def _make_default_group(place: Place, backend: str) -> None:
    """Make the default process group, through a store of the first rank, at a port that is reserved for it.

    By itself the store listens on all interfaces. It knows no key, so it gets a socket of the ranks' own address:
    127.0.0.1 on one host, that of the machine's interface between hosts.
    """
    host, _, port = place.addresses[0].rpartition(":")
    limit_s = heartbeats.read_limit_s() / 2  # the launch would end the run without saying what was waited for
    try:
        listening = socket.create_server((host, int(port)), backlog=place.size).detach() if place.number == 0 else None
        store = distributed.TCPStore(host, int(port), place.size, place.number == 0,
                                     datetime.timedelta(seconds=limit_s), master_listen_fd=listening)  # fmt: skip
    except OSError as error:
        raise StudyError(
            f"rank 0 cannot listen at {host}:{port}: {error.strerror}; see interface in the machine's file"
        ) from None
    except distributed.DistError as error:
        raise StudyError(
            f"rank {place.number} waited {limit_s:g} s for the others at {host}:{port}. Has the launcher started all "
            f"ranks, and does the interface of the machine's file reach all hosts? ({str(error).splitlines()[0]})"
        ) from None
    store.set_timeout(
        WAIT_LIMIT
    )  # with which NCCL waits in its first operation, to which ranks come when they have loaded
    distributed.init_process_group(backend, store=store, rank=place.number, world_size=place.size, timeout=WAIT_LIMIT)


def _list_libraries(device: torch.device) -> dict[str, str]:
    """The versions of the libraries that carry the communication, by name."""
    versions = {"torch": torch.__version__, "controller": "gloo", "gloo": f"of PyTorch {torch.__version__}"}
    if device.type == "cuda":
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return versions
