"""Locks on open files and folders, which end with the process that holds them; where there are none, this is said.

flock(2) is missing on some file systems: Lustre mounted without ``flock`` gives ENOSYS, NFS without a lock service
ENOLCK, others EOPNOTSUPP, EINVAL, EIO or EBADF, some for files only and some for folders only. Nothing fails for want
of a lock: whoever asks decides what is done without it.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path


class Lock(Enum):
    """What became of an attempt to lock."""

    HELD = "held"
    TAKEN = "taken"  # by another process
    MISSING = "missing"  # the file system, or the system, has no such locks


def attempt(descriptor: int) -> Lock:
    """Try to lock an open file or folder for this process and those that inherit it. Never waits, never raises."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return Lock.TAKEN if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else Lock.MISSING
    return Lock.HELD


def remove_unheld(paths: Iterable[Path], flags: int, remove: Callable[[Path], object]) -> None:
    """Remove files or folders on which no process holds a lock; where locks cannot be had, they stay.

    flags: with which they are opened. remove: called with the lock held; an `OSError` leaves that one where it is.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, flags)
            try:
                if attempt(descriptor) is Lock.HELD:
                    remove(path)
            finally:
                os.close(descriptor)


def claim(name: str, note: str) -> tuple[Lock, list[socket.socket]]:
    """Try to claim a name of this machine, for this process and those that inherit the sockets. Never waits.

    It is an abstract socket (unix(7)): there is one of a name in a network namespace, whichever /tmp a process sees,
    and nobody can remove it. note: for `note_of`; letters, digits and ``:.-``, at most 60.
    """
    found: list[socket.socket] = []
    try:
        for each in (f"\0{name}", f"\0{name}:{note}"):
            found.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
            found[-1].bind(each)
    except OSError as error:
        for one in found:
            one.close()
        return (Lock.TAKEN if error.errno == errno.EADDRINUSE else Lock.MISSING), []
    return Lock.HELD, found


def note_of(name: str) -> str | None:
    """The note of whoever has claimed a name; None if it cannot be read."""
    with contextlib.suppress(OSError):
        text = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
        if found := re.search(rf"@{re.escape(name)}:([A-Za-z0-9:.-]+)$", text, re.M):
            return found[1]
    return None
