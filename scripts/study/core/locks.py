"""Locks on open files and folders, which end with the process that holds them; where there are none, this is said.

flock(2) is missing on some file systems: Lustre mounted without ``flock`` gives ENOSYS, NFS without a lock service
ENOLCK, others EOPNOTSUPP, EINVAL, EIO or EBADF, some for files only and some for folders only. Nothing fails for want
of a lock: whoever asks decides what is done without it.
"""

import errno
import fcntl
from enum import Enum


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
