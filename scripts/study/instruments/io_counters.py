"""How much a process reads from the file system that the nodes share, by the kernel's own count."""

import contextlib
from pathlib import Path

import psutil


class SharedReads:
    """Counts the reading in the blocks that it surrounds; what is read elsewhere, such as from a node's copy, is not.

    asked: bytes that calls asked for, from the page cache or not. stored: bytes that had to come from storage. None
    where the kernel keeps no such count. A mapped file, which no call reads, counts with its whole size under
    ``asked``: each process that trains on it goes through it.
    """

    def __init__(self):
        counted = _counters() is not None
        self.asked, self.stored = (0, 0) if counted else (None, None)

    @contextlib.contextmanager
    def counted(self):
        """Add what is read in the block."""
        before = _counters()
        yield
        after = _counters()
        if before and after:
            self.asked += after[0] - before[0]
            self.stored += after[1] - before[1]

    def mapped(self, path):
        """Add a file that is mapped."""
        if self.asked is not None:
            self.asked += Path(path).stat().st_size

    def as_mb(self):
        """What a run's ``metrics.json`` says of a rank, in MB."""
        return {
            "shared_read_mb": None if self.asked is None else self.asked / 1e6,
            "storage_read_mb": None if self.stored is None else self.stored / 1e6,
        }


def _counters():
    try:
        counters = psutil.Process().io_counters()
    except (psutil.Error, OSError, NotImplementedError):
        return None
    return counters.read_chars, counters.read_bytes
