"""What all limits share: their registry, where they are set, and why they cannot be set."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from study.core.cores import ROOT
from study.core.errors import StudyError
from study.core.registry import Registry

TOLERANCE = 0.01  # relative; a driver rounds what it is given to its own steps


class Refused(StudyError):
    """A limit cannot be set here; the message is the reason, in one line."""


@dataclass(frozen=True)
class Place:
    """The host on which limits are set.

    root: below which /sys is read and written; tests have others. variables: the ranks' environment, whose
    ``CUDA_VISIBLE_DEVICES`` tells their GPUs. nvml: the pynvml module or a replacement for it; None to import it.
    """

    root: Path = ROOT
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    nvml: Any = None


class Limit(ABC):
    """One limit, named as the grid key that asks for it. off: the key's value that sets nothing."""

    unit: str = ""
    off: Any = 0

    @abstractmethod
    def devices(self, place: Place) -> list[str]:
        """The devices that get the limit; raises `Refused` if there are none."""

    @abstractmethod
    def check(self, place: Place, device: str, value: Any) -> None:
        """Raise `Refused` if the device cannot have the value, as far as can be told without setting it."""

    @abstractmethod
    def current(self, place: Place, device: str) -> Any:
        """What the device has now, to be put back later; plain values. Raises `Refused`."""

    @abstractmethod
    def write(self, place: Place, device: str, value: Any) -> None:
        """Set a value of the grid key; raises `Refused`."""

    @abstractmethod
    def read_back(self, place: Place, device: str) -> Any:
        """What the device says that it has, in the grid key's unit."""

    @abstractmethod
    def restore(self, place: Place, device: str, before: Any) -> None:
        """Put back what `current` returned; raises `Refused`."""

    def agrees(self, value: Any, found: Any) -> bool:
        """Whether what was read back is what was asked for."""
        if isinstance(value, str):
            return bool(found == value)
        return bool(found is not None and abs(found - value) <= TOLERANCE * value)


LIMITS: Registry[Limit] = Registry("limit")
L = TypeVar("L", bound=type[Limit])


def limit(name: str) -> Callable[[L], L]:
    """Register the decorated class, as the grid key that asks for it."""

    def registered(kind: L) -> L:
        LIMITS.add(name, kind())
        return kind

    return registered


def contents(path: Path) -> str:
    """A file of /sys, stripped; raises `Refused`."""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None


def number(path: Path) -> int:
    """A file of /sys with an integer; raises `Refused`."""
    text = contents(path)
    try:
        return int(text)
    except ValueError:
        raise Refused(f"{path}: {text[:20]!r} is no integer") from None


def store(path: Path, value: Any) -> None:
    """Write a file of /sys; raises `Refused`, as where the kernel refuses the value."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)  # never makes a file that the kernel does not have
        try:
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror} (writing {value})") from None


def check_writable(path: Path) -> None:
    """Raise `Refused` if this process may not write a file of /sys."""
    if not os.access(path, os.W_OK):
        raise Refused(f"no permission to write {path}; usually only root may")
