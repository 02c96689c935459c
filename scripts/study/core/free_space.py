"""Lack of space in the folders that runs write to, which is no result of a run."""

import errno
import os
import re
from collections.abc import Iterable, Mapping

from study.core.files import AnyPath

# What programs print if a file system is full or read-only; the last two are PyTorch's, of /dev/shm.
MESSAGES = re.compile(
    "|".join([*map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS)),
              r"insufficient shared memory \(shm\)", "raise your shared memory limit"]), re.I
)  # fmt: skip
REMEDY = (
    "that is no result, so there is no record of it: free some space or have it made writable, then give the same "
    "command again"
)

SHARED_MEMORY = "/dev/shm"  # noqa: S108  also of the semaphores of glibc
LEAST_TEMPORARY_MB, LEAST_SHARED_MB = 20, 1


def explain_lack_of_space(folder: AnyPath, least_mb: float = 1.0) -> str | None:
    """Why files of ``least_mb`` MB cannot be written to a folder; None if they can."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder}: you may not write there, or it is read-only"
    status = os.statvfs(folder)
    free_mb = status.f_bavail * status.f_frsize / 1e6
    if status.f_blocks and free_mb < least_mb:  # some file systems do not tell their size
        return f"{folder}: {free_mb:.0f} MB are free, {least_mb:g} MB are needed"
    return (
        f"{folder}: no further file can be made there, by its number of inodes"
        if status.f_favail == 0 < status.f_files
        else None
    )


def get_temporary_folder(variables: Mapping[str, str]) -> str:
    """The folder for temporary files of a process with these ``variables``, as C libraries have it."""
    return variables.get("TMPDIR") or "/tmp"  # noqa: S108


def find_message(lines: Iterable[str]) -> str | None:
    """The first line that tells of a lack of space; None without one."""
    return next((line.strip()[:300] for line in lines if MESSAGES.search(line)), None)
