"""How much a process reads from shared storage and from its node's own copies, by the kernel's counters."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from study.core.files import AnyPath

COUNTERS = Path("/proc/self/io")  # see proc(5)


class ReadCounter:
    """Counts the bytes read inside the blocks that it surrounds.

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
            self.asked += after[0] - before[0] - before[2]
            self.stored += after[1] - before[1]

    def mapped(self, path: AnyPath) -> None:
        """Add the size of a file that is mapped."""
        if self.asked is not None:
            self.asked += Path(path).stat().st_size


class Reads:
    """What one rank reads of a run's files.

    shared: of the files that all nodes share, copying them included. node: of its node's own copies, the check of the
    copies not included. staged: bytes that this rank copied to its node; None in a run without such copies.
    """

    def __init__(self) -> None:
        self.shared, self.node = ReadCounter(), ReadCounter()
        self.staged: int | None = None

    def as_mb(self) -> dict[str, float | None]:
        """The rank's counters for ``metrics.json``, in MB; those of copies only in a run with copies."""
        found = {"shared_read_mb": _mb(self.shared.asked), "storage_read_mb": _mb(self.shared.stored)}
        if self.staged is not None:
            found |= {
                "staged_mb": _mb(self.staged),
                "node_read_mb": _mb(self.node.asked),
                "node_storage_read_mb": _mb(self.node.stored),
            }
        return found


def _mb(number: int | None) -> float | None:
    return None if number is None else number / 1e6


def _counters() -> tuple[int, int, int] | None:
    """Bytes asked for and bytes from storage until now, and how many bytes this look asks for itself."""
    try:
        content = COUNTERS.read_bytes()
        number = {name: int(value) for name, value in (line.split(b":") for line in content.splitlines())}
        return number[b"rchar"], number[b"read_bytes"], len(content)
    except (OSError, ValueError, KeyError):
        return None
