"""A node's own copies of a run's files: made by one process, checked, and removed when they are no longer needed.

Each run copies into a new folder, so what a killed process left is never taken for complete. The process that makes the
copies holds a lock on the folder; a folder whose lock is free is left over, and the next run on the node removes it.
"""

import contextlib
import errno
import glob
import hashlib
import os
import shutil
import socket
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from study.core import locks
from study.core.errors import StudyError
from study.core.files import AnyPath
from study.instruments.counters import ReadCounter

PREFIX = "study-staged-"  # then the host's name: locks of a file system that hosts share may hold on one host only
PIECE_BYTES = 1 << 24
# Bytes; a file of this size or more is read back from the storage, a smaller one as the system has it.
FLUSH_BYTES = 1 << 20
ATTEMPTS = 100


class NodeCopies:
    """Copies of files and folders in a folder of their own, ``folder``, until `remove`.

    copies: {original: copy}. size: bytes that were copied.
    """

    def __init__(self, storage: str, key: str) -> None:
        """Remove what killed runs left in ``storage``, a folder on storage of the node's own, and make the folder.

        key: of the machine's file that names the storage, for messages. Raises `StudyError` if it cannot be written to.
        """
        self._where = f"{storage} ({key} in the machine's file)"
        _remove_abandoned(storage)
        with self._report_write_errors("the run's files"):
            self.folder, self._lock = _make_locked_folder(storage)
        self.copies: dict[str, str] = {}
        self.size = 0

    def add(self, paths: list[str], reads: ReadCounter, checksums: Mapping[str, str] | None = None) -> None:
        """Copy files and folders, and check each copy's size and CRC-32 against what was read of the original.

        Args:
            paths: of the originals; one that is given twice is copied once.
            reads: counts the bytes read of the originals.
            checksums: SHA-256 of originals, as far as it is recorded, by path; what is read is compared with it.

        Raises:
            StudyError: there is no room, the storage cannot be written to, or a copy differs.
            OSError: an original cannot be read.
        """
        listed = {path: _list_files(path) for path in dict.fromkeys(paths)}
        self._check_room(sum(size for files in listed.values() for _, size in files))
        for number, (path, files) in enumerate(listed.items()):
            copy = Path(self.folder, str(number), Path(path).name)
            for name, _ in files:
                self.size += self._copy(Path(path, name), copy / name, reads, (checksums or {}).get(path))
            self.copies[path] = str(copy)

    def remove(self) -> None:
        """Remove the copies; files that are open or mapped stay readable until they are closed."""
        if self._lock >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def _check_room(self, size: int) -> None:
        """Raise `StudyError` if the storage has not ``size`` bytes free."""
        with self._report_write_errors("the run's files"):
            status = os.statvfs(self.folder)
        free = status.f_bavail * status.f_frsize
        if status.f_blocks and free < size:  # some file systems do not tell their size
            raise self._make_error(
                f"the run's files ({size / 1e6:.0f} MB)", f"{os.strerror(errno.ENOSPC)}: {free / 1e6:.0f} MB are free"
            )

    def _copy(self, source: Path, target: Path, reads: ReadCounter, checksum: str | None) -> int:
        """Copy one file and check the copy; returns its size in bytes."""
        with open(source, "rb") as original, reads.count():
            size = os.fstat(original.fileno()).st_size
            name = f"{source} ({size / 1e6:.0f} MB)"
            with self._report_write_errors(name):
                target.parent.mkdir(parents=True, exist_ok=True)
                copy = open(target, "xb", buffering=0)  # noqa: SIM115
            with copy:
                expected = self._write_copy(copy, original, size, name, checksum)
        with self._report_write_errors(name):
            actual = _compute_size_and_crc(target)
        if actual != expected:
            raise self._make_error(
                name,
                f"the copy has {actual[0]} bytes with CRC-32 {actual[1]:08x}, not {expected[0]} with "
                f"{expected[1]:08x}; check this storage",
            )
        return size

    def _write_copy(
        self, copy: IO[bytes], original: IO[bytes], size: int, name: str, checksum: str | None
    ) -> tuple[int, int]:
        """Allocate and write a copy; returns the size in bytes and the CRC-32 of what was read."""
        copied, crc, digest = 0, 0, hashlib.sha256()
        with self._report_write_errors(name):
            if size:
                os.posix_fallocate(copy.fileno(), 0, size)
        for piece in iter(lambda: original.read(PIECE_BYTES), b""):
            copied, crc, unwritten = copied + len(piece), zlib.crc32(piece, crc), memoryview(piece)
            if checksum:
                digest.update(piece)
            with self._report_write_errors(name):
                while unwritten:  # a write may take a part
                    unwritten = unwritten[copy.write(unwritten) :]
        if copied != size:
            raise StudyError(
                f"{original.name}: had {size} bytes, and {copied} while it was copied; start the run again"
            )
        if checksum and digest.hexdigest() != checksum:
            raise StudyError(f"{original.name}: was changed after its conversion; delete it to have it made again")
        with self._report_write_errors(name):
            if size >= FLUSH_BYTES:
                os.fdatasync(copy.fileno())
                os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return copied, crc

    @contextlib.contextmanager
    def _report_write_errors(self, name: str) -> Iterator[None]:
        """Raise an `OSError` of the block, which writes to the storage, as a `StudyError` that names the file."""
        try:
            yield
        except OSError as error:
            raise self._make_error(name, error.strerror or str(error)) from None

    def _make_error(self, name: str, reason: str) -> StudyError:
        """The error for a file that cannot be copied."""
        return StudyError(f"{socket.gethostname()}: {name} cannot be copied to {self._where}: {reason}")


def _list_files(path: AnyPath) -> list[tuple[str, int]]:
    """(name below the path, size in bytes) of each file of a folder; the name of a single file is empty."""
    if not Path(path).is_dir():
        return [("", Path(path).stat().st_size)]
    files = []
    for folder, _, names in os.walk(path, onerror=_raise, followlinks=True):
        for whole in (Path(folder, name) for name in sorted(names)):
            files.append((str(whole.relative_to(path)), whole.stat().st_size))
    return files


def _raise(error: OSError) -> None:
    """Raise an error, for `os.walk`, which ignores errors otherwise."""
    raise error


def _compute_size_and_crc(path: Path) -> tuple[int, int]:
    """Size in bytes and CRC-32 of a file."""
    size = crc = 0
    with open(path, "rb") as handle:
        for piece in iter(lambda: handle.read(PIECE_BYTES), b""):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def _make_locked_folder(storage: str) -> tuple[str, int]:
    """(A new folder, the descriptor that holds its lock)."""
    for _ in range(ATTEMPTS):
        folder = tempfile.mkdtemp(prefix=f"{PREFIX}{socket.gethostname()}.", dir=storage)
        # Another run may take it for left over before it is locked, or even opened.
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        if locks.try_lock(descriptor) is not locks.Lock.TAKEN and Path(folder).is_dir():
            return folder, descriptor
        os.close(descriptor)
    raise OSError(errno.EAGAIN, "each new folder was removed by another process at once")


def _remove_abandoned(storage: str) -> None:
    """Remove this host's folders of copies that no process holds; where locks cannot be had, they stay."""
    folders = Path(storage).glob(f"{PREFIX}{glob.escape(socket.gethostname())}.????????")
    locks.remove_unheld(folders, os.O_RDONLY | os.O_DIRECTORY, lambda each: shutil.rmtree(each, ignore_errors=True))
