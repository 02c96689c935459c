"""What the parts of the check use: NVML, a clock, work for the GPU, other processes; tests replace each."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from study.instruments.power import gpus
from study.instruments.power.readings import Device
from study.instruments.power.sensors import nvml as sensor
from study.launch.gpu_check.results import NotPossible, Rows

DEFAULT_MINUTES = 10.0


class Clock:
    """The time of this process."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(max(0.0, seconds))


class Work(Protocol):
    """Work that uses a GPU fully."""

    def prepare(self, index: int) -> None:
        """Have all ready, so that `start` takes effect at once. Raises `NotPossible`."""

    def start(self, index: int) -> None:
        """Begin to use the GPU with this number of CUDA's."""

    def stop(self) -> None:
        """End it; nothing if there is none."""


@dataclass(frozen=True)
class ShownDevice:
    """A GPU as PyTorch shows it. pci: domain, bus, device. None where this version of PyTorch does not tell."""

    name: str
    uuid: str | None
    pci: tuple[int, int, int] | None


@dataclass
class Context:
    """Where a part finds what it needs.

    shown: the GPUs that PyTorch shows to a process with these variables. holding: keeps so many processes on the GPU
    with a UUID, and gives their PIDs. limited: holds {limit: value} of the GPU
    with a UUID while its block runs, and gives what was set, which has ``restored`` afterwards.
    """

    rows: Rows
    output: Path
    nvml: Any
    work: Work
    shown: Callable[[Mapping[str, str]], Sequence[ShownDevice]]
    holding: Callable[[str, int], AbstractContextManager[Sequence[int]]]
    limited: Callable[[str, Mapping[str, Any]], AbstractContextManager[Sequence[Mapping[str, Any]]]]
    clock: Clock = field(default_factory=Clock)
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    minutes: float = DEFAULT_MINUTES
    say: Callable[[str], None] = print
    kind: str = "cuda"  # PyTorch's; tests without a GPU have "cpu"

    @property
    def share(self) -> float:
        """Of the default time."""
        return self.minutes / DEFAULT_MINUTES

    def uuids(self) -> Sequence[str | None]:
        """The UUIDs of the GPUs that CUDA shows, by this project's own mapping."""
        return gpus.visible(self.variables, self.nvml) or ()

    def first(self) -> str:
        """The UUID of the first of them; raises `NotPossible` without one."""
        shown = self.uuids()
        if not shown:
            raise NotPossible("CUDA_VISIBLE_DEVICES shows no GPU of NVML's")
        if shown[0] is None:
            raise NotPossible("the first GPU is in MIG mode, is lost, or cannot be identified")
        return shown[0]

    def device(self, uuid: str) -> Device:
        """The project's power sensor of a GPU; raises `NotPossible`."""
        for device in sensor.find(self.nvml):
            if device.name == uuid:
                return device
        raise NotPossible(f"{uuid}: the project's NVML sensor does not list it")

    def handle(self, uuid: str) -> Any:
        """NVML's handle of a GPU; raises `NotPossible`."""
        for _, handle, error in sensor.handles(self.nvml):
            if error is None and sensor.uuid_of(self.nvml, handle) == uuid:
                return handle
        raise NotPossible(f"{uuid}: NVML lists no such GPU, or it is lost")
