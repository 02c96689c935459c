"""The kernel's page cache of one file: fill it, empty it, and look how much of the file is in it."""

import ctypes
import mmap
import os
from pathlib import Path

BLOCK = 1 << 24
COLD = 0.01  # at most this share of a file may still be in memory


def warm(path):
    """Read the file once, so that the next reader finds it in memory."""
    with open(path, "rb") as handle:
        while handle.read(BLOCK):
            pass


def drop(path):
    """Ask the kernel to forget the file's pages; returns None, or why they are still in memory.

    No rights are needed, but a file system that lives in memory keeps them. A virtual machine's host may have a cache
    of its own, which cannot be seen from here.
    """
    if os.stat(path).st_uid != os.geteuid() and not os.access(path, os.W_OK):  # noqa: PTH116
        return f"the kernel does not tell this user what of {Path(path).name} is in memory: the file is another's"
    with open(path, "rb") as handle:
        os.fsync(handle.fileno())  # pages not yet written cannot be dropped
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    share = share_in_memory(path)
    if share > COLD:
        return f"{share:.0%} of {Path(path).name} stayed in the page cache after the kernel was asked to drop it"
    return None


def share_in_memory(path):
    """The share of the file's pages, 0 to 1, that are in the page cache (mincore)."""
    size = Path(path).stat().st_size
    if size == 0:
        return 0.0
    pages = -(-size // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    # A private mapping can be writable, which ctypes asks for, on a file opened for reading.
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    with open(path, "rb") as handle, mmap.mmap(handle.fileno(), size, mmap.MAP_PRIVATE, protection) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), found)
        del first
    if failed:
        raise OSError(ctypes.get_errno(), "mincore", str(path))
    return sum(page & 1 for page in found) / pages
