"""A node's own copies of a run's files: made by one process, checked, and removed when they are no longer needed.

Each run copies into a new folder, so what a killed process left is never taken for complete. The process that makes the
copies holds a lock on the folder; a folder whose lock is free is left over, and the next run on the node removes it.
"""

import contextlib
import errno
import glob
import os
import shutil
import socket
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from study.core import locks
from study.core.errors import StudyError
from study.core.files import AnyPath
from study.instruments.counters import ReadCounter

PREFIX = "study-staged-"  # then the host's name: locks of a file system that hosts share may hold on one host only
PIECE = 1 << 24
# Bytes; a file of this size or more is read back from the storage, a smaller one as the system has it.
FLUSHED = 1 << 20
ATTEMPTS = 100


class NodeCopies:
    """Copies of files and folders in a folder of their own, ``folder``, until `remove`.

    made: {original: copy}. size: bytes that were copied.
    """

    def __init__(self, storage: str, key: str) -> None:
        """Remove what killed runs left in ``storage``, a folder on storage of the node's own, and make the folder.

        key: of the machine's file that names the storage, for messages. Raises `StudyError` if it cannot be written to.
        """
        self._where = f"{storage} ({key} in the machine's file)"
        _remove_abandoned(storage)
        with self._writing("the run's files"):
            self.folder, self._lock = _claimed(storage)
        self.made: dict[str, str] = {}
        self.size = 0

    def add(self, paths: list[str], reads: ReadCounter) -> None:
        """Copy files and folders, and check each copy's size and CRC-32 against what was read of the original.

        Args:
            paths: of the originals; one that is given twice is copied once.
            reads: counts the bytes read of the originals.

        Raises:
            StudyError: there is no room, the storage cannot be written to, or a copy differs.
            OSError: an original cannot be read.
        """
        listed = {path: _files(path) for path in dict.fromkeys(paths)}
        self._check_room(sum(size for files in listed.values() for _, size in files))
        for number, (path, files) in enumerate(listed.items()):
            copy = Path(self.folder, str(number), Path(path).name)
            for name, _ in files:
                self.size += self._copy(Path(path, name), copy / name, reads)
            self.made[path] = str(copy)

    def remove(self) -> None:
        """Remove the copies; files that are open or mapped stay readable until they are closed."""
        if self._lock >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def _check_room(self, size: int) -> None:
        with self._writing("the run's files"):
            found = os.statvfs(self.folder)
        free = found.f_bavail * found.f_frsize
        if found.f_blocks and free < size:  # some file systems do not tell their size
            raise self._refused(
                f"the run's files ({size / 1e6:.0f} MB)", f"{os.strerror(errno.ENOSPC)}: {free / 1e6:.0f} MB are free"
            )

    def _copy(self, source: Path, target: Path, reads: ReadCounter) -> int:
        """Copy one file and check the copy; returns its size in bytes."""
        with open(source, "rb") as given, reads.count():
            size = os.fstat(given.fileno()).st_size
            what = f"{source} ({size / 1e6:.0f} MB)"
            with self._writing(what):
                target.parent.mkdir(parents=True, exist_ok=True)
                made = open(target, "xb", buffering=0)  # noqa: SIM115
            with made:
                copied = self._fill(made, given, size, what)
        with self._writing(what):
            found = _size_and_crc(target)
        if found != copied:
            raise self._refused(what, f"the copy has {found[0]} bytes with CRC-32 {found[1]:08x}, not {copied[0]} with "
                                      f"{copied[1]:08x}; check this storage")  # fmt: skip
        return size

    def _fill(self, made: IO[bytes], given: IO[bytes], size: int, what: str) -> tuple[int, int]:
        """Write a copy; its room is allocated before. Returns the size in bytes and the CRC-32 of what was read."""
        copied = crc = 0
        with self._writing(what):
            if size:
                os.posix_fallocate(made.fileno(), 0, size)
        for piece in iter(lambda: given.read(PIECE), b""):
            copied, crc, rest = copied + len(piece), zlib.crc32(piece, crc), memoryview(piece)
            with self._writing(what):
                while rest:  # a write may take a part
                    rest = rest[made.write(rest) :]
        if copied != size:
            raise StudyError(f"{given.name}: had {size} bytes, and {copied} while it was copied; start the run again")
        with self._writing(what):
            if size >= FLUSHED:
                os.fdatasync(made.fileno())
                os.posix_fadvise(made.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return copied, crc

    @contextlib.contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Around writing to the storage: an `OSError` becomes a `StudyError`."""
        try:
            yield
        except OSError as error:
            raise self._refused(what, error.strerror or str(error)) from None

    def _refused(self, what: str, why: str) -> StudyError:
        return StudyError(f"{socket.gethostname()}: {what} cannot be copied to {self._where}: {why}")


def _files(path: AnyPath) -> list[tuple[str, int]]:
    """(name below the path, size in bytes) of each file of a folder; of a file itself, with an empty name."""
    if not Path(path).is_dir():
        return [("", Path(path).stat().st_size)]
    found = []
    for folder, _, names in os.walk(path, onerror=_raise, followlinks=True):
        for whole in (Path(folder, name) for name in sorted(names)):
            found.append((str(whole.relative_to(path)), whole.stat().st_size))
    return found


def _raise(error: OSError) -> None:
    raise error


def _size_and_crc(path: Path) -> tuple[int, int]:
    size = crc = 0
    with open(path, "rb") as handle:
        for piece in iter(lambda: handle.read(PIECE), b""):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def _claimed(storage: str) -> tuple[str, int]:
    """A new folder, and the descriptor that holds its lock."""
    for _ in range(ATTEMPTS):
        folder = tempfile.mkdtemp(prefix=f"{PREFIX}{socket.gethostname()}.", dir=storage)
        # Another run may take it for left over before it is locked, or even opened.
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        if locks.attempt(descriptor) is not locks.Lock.TAKEN and Path(folder).is_dir():
            return folder, descriptor
        os.close(descriptor)
    raise OSError(errno.EAGAIN, "each new folder was removed by another process at once")


def _remove_abandoned(storage: str) -> None:
    """Remove folders that no process holds; where locks cannot be had, they stay."""
    found = Path(storage).glob(f"{PREFIX}{glob.escape(socket.gethostname())}.????????")
    locks.remove_unheld(found, os.O_RDONLY | os.O_DIRECTORY, lambda each: shutil.rmtree(each, ignore_errors=True))
