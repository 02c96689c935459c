"""Whose a file is: in a folder that others can write to, one with our name may be theirs.

It imports only the standard library, and nothing of this project, since `study.machines.guard` loads it by its path.
"""

import errno
import os
import stat


def is_trusted(status: os.stat_result) -> bool:
    """True if only this user and root can replace a file: one of them owns it, and not all may write to it.

    In a sticky folder, such as /tmp, all may write, but nobody can replace what belongs to another user.
    """
    is_open_to_all = bool(status.st_mode & stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    return status.st_uid in (os.geteuid(), 0) and (stat.S_ISLNK(status.st_mode) or not is_open_to_all)


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Descriptor of a file (with O_DIRECTORY: folder) of this user; refuses links, pipes, devices and others' files.

    It never waits, as opening a pipe does. A file that it makes is open to this user only.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    is_kind = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink < 2)
    if is_kind and status.st_uid == os.geteuid() and is_trusted(status):
        return descriptor
    os.close(descriptor)
    words = f"belongs to user {status.st_uid}, or others may write to it" if is_kind else "is no file of its own"
    raise PermissionError(errno.EPERM, words, os.fspath(path))
