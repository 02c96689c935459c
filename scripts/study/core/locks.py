"""Locks on open files and folders, which end with the process that holds them; where there are none, this is said.

flock(2) is missing on some file systems: Lustre mounted without ``flock`` gives ENOSYS, NFS without a lock service
ENOLCK, others EOPNOTSUPP, EINVAL, EIO or EBADF, some for files only and some for folders only. Nothing fails for want
of a lock: whoever asks decides what is done without it.
"""

import contextlib
import errno
import fcntl
import functools
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path

from study.core import ownership

ASKED, ASK_S = 5, 0.02  # how often, and at which interval, it is asked whose a name is
WAITING = 4096  # processes of which each leaves a connection in the queue of the one that it waits for


class Lock(Enum):
    """The outcome of an attempt to lock."""

    HELD = "held"
    TAKEN = "taken"  # by another process
    FOREIGN = "foreign"  # another user has taken what is this user's
    MISSING = "missing"  # the file system, or the system, has no such locks


def try_lock(descriptor: int) -> Lock:
    """Try to lock an open file or folder for this process and those that inherit it; never waits or raises."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return Lock.TAKEN if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else Lock.MISSING
    return Lock.HELD


def remove_unheld(paths: Iterable[Path], flags: int, remove: Callable[[Path], object]) -> None:
    """Remove this user's files or folders that no process has locked; where locks are missing, they stay.

    flags: with which they are opened. remove: called with the lock held; an `OSError` leaves that one where it is.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            descriptor = ownership.open_own(path, flags)
            try:
                if try_lock(descriptor) is Lock.HELD:
                    remove(path)
            finally:
                os.close(descriptor)


def claim_name(name: str, note: str) -> tuple[Lock, list[socket.socket]]:
    """Try to claim a name on this machine for this process and those that inherit the sockets.

    It is an abstract socket (unix(7)): there is one of a name in a network namespace, whichever /tmp a process sees,
    and nobody can remove it. Every user can bind it, so it counts as taken only if it is this user's. note: for
    `read_note`; letters, digits and ``:.-``, at most 60.
    """
    for _ in range(ASKED):
        sockets: list[socket.socket] = []
        try:
            for address in (f"\0{name}", f"\0{name}:{note}"):
                sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
                sockets[-1].bind(address)
                sockets[-1].listen(WAITING)  # nothing is accepted, but the kernel tells others whose it is
            return Lock.HELD, sockets
        except OSError as error:
            for claimed_socket in sockets:
                claimed_socket.close()
            if error.errno != errno.EADDRINUSE:
                return Lock.MISSING, []
        claims = _read_claims(name)
        with contextlib.suppress(OSError):  # it does not listen: it has just been bound, or is none of ours
            owner = _find_owner(name, next((inode for inode, claimed_name, _ in claims if claimed_name == name), None))
            return (Lock.TAKEN if owner == os.geteuid() else Lock.FOREIGN), []
        time.sleep(ASK_S)
    return Lock.FOREIGN, []


def read_note(name: str) -> str | None:
    """The note of this user's process that has claimed a name; None if there is none."""
    for inode, claimed_name, note in _read_claims(name):
        with contextlib.suppress(OSError):
            if note and _find_owner(claimed_name, inode) == os.geteuid():
                return note
    return None


def _read_claims(name: str) -> list[tuple[str, str, str | None]]:
    """(inode, name in the kernel, note) of each socket of any user that claims ``name``."""
    try:
        text = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # Connections that were not accepted have the inode 0.
    return re.findall(rf" ([1-9]\d*) @({re.escape(name)}(?::([A-Za-z0-9:.-]+))?)$", text, re.M)


@functools.lru_cache(1024)
def _find_owner(name: str, inode: str | None) -> int:
    """The user id of the process that listens at an abstract socket's name.

    inode: of its socket, which is asked once, since each connection keeps a place in its queue.

    Raises:
        OSError: nobody listens there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
        asking.setblocking(False)
        try:
            asking.connect(f"\0{name}")
        except BlockingIOError:  # its queue is full, as every user can make it
            return _find_holder(inode)
        return read_peer_user(asking)


def _find_holder(inode: str | None) -> int:
    """The user id of a process that has a socket open, of those whose descriptors can be read.

    Raises:
        OSError: there is none.
    """
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) == f"socket:[{inode}]":  # noqa: PTH115  it is no path
                return link.parents[1].stat().st_uid
    raise ProcessLookupError(errno.ESRCH, "no process here has this socket")


def read_peer_user(connected: socket.socket) -> int:
    """The user id of the process at the other end of a Unix socket."""
    _, user, _ = struct.unpack("iII", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)
