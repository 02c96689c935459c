"""How much a process reads from shared storage, by the kernel's counters."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

from study.core.files import AnyPath


class SharedReads:
    """Counts the bytes read inside the blocks that it surrounds; other reads, such as from a node's copy, do not count.

    asked: bytes requested by read(), whether or not they come from the page cache. stored: bytes that came from
    storage. Both are None if the kernel keeps no such counters. A mapped file is read without calls; it counts with its
    whole size under ``asked``, because each process that trains on it reads all of it.
    """

    def __init__(self) -> None:
        counted = _counters() is not None
        self.asked: int | None = 0 if counted else None
        self.stored: int | None = 0 if counted else None

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Add the bytes that are read inside the block."""
        before = _counters()
        yield
        after = _counters()
        if before and after and self.asked is not None and self.stored is not None:
            self.asked += after[0] - before[0]
            self.stored += after[1] - before[1]

    def mapped(self, path: AnyPath) -> None:
        """Add the size of a file that is mapped."""
        if self.asked is not None:
            self.asked += Path(path).stat().st_size

    def as_mb(self) -> dict[str, float | None]:
        """The rank's counters for ``metrics.json``, in MB."""
        return {
            "shared_read_mb": None if self.asked is None else self.asked / 1e6,
            "storage_read_mb": None if self.stored is None else self.stored / 1e6,
        }


def _counters() -> tuple[int, int] | None:
    try:
        counters = psutil.Process().io_counters()
    except (psutil.Error, OSError, NotImplementedError):
        return None
    return counters.read_chars, counters.read_bytes
