"""The kernel's page cache of one file: fill it, drop it, and measure how much of the file is in it."""

import ctypes
import mmap
import os
from pathlib import Path

from study.core.files import AnyPath

BLOCK = 1 << 24
RELEASE = "STUDY_RELEASE_PAGES"  # variable of a run after which another one shall find its files on storage, too
COLD = 0.01  # at most this share of a file may still be in memory


def warm_file(path: AnyPath) -> None:
    """Read a file once, so that the next reader finds it in memory."""
    with open(path, "rb") as handle:
        while handle.read(BLOCK):
            pass


def drop_file(path: AnyPath) -> str | None:
    """Ask the kernel to drop a file's pages; returns None, or why they are still in memory.

    No privileges are needed, but a file system in memory keeps its pages. The host of a virtual machine may have a
    cache of its own, which is not visible here.
    """
    if os.stat(path).st_uid != os.geteuid() and not os.access(path, os.W_OK):  # noqa: PTH116
        return f"the kernel does not tell this user what of {Path(path).name} is in memory: the file is another's"
    release_file(path)
    share = measure_share_in_memory(path)
    if share > COLD:
        return f"{share:.0%} of {Path(path).name} stayed in the page cache after the kernel was asked to drop it"
    return None


def release_file(path: AnyPath) -> None:
    """Ask the kernel to drop a file's pages; it need not do it."""
    with open(path, "rb") as handle:
        os.fsync(handle.fileno())  # dirty pages cannot be dropped
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_share_in_memory(path: AnyPath) -> float:
    """Share of a file's pages, 0 to 1, that are in the page cache (mincore)."""
    size = Path(path).stat().st_size
    if size == 0:
        return 0.0
    pages = -(-size // mmap.PAGESIZE)
    states = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    # ctypes needs a writable mapping; a private one is writable even if the file is opened for reading.
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    with open(path, "rb") as handle, mmap.mmap(handle.fileno(), size, mmap.MAP_PRIVATE, protection) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), states)
        del first
    if failed:
        raise OSError(ctypes.get_errno(), "mincore", str(path))
    return sum(page & 1 for page in states) / pages
