"""Free space in the folders that runs write to, whatever they are."""

import os
from collections.abc import Mapping

from study.core.files import AnyPath

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
