"""Control groups, version 1 or 2, for tests that freeze processes, slow them down or limit their memory."""

import contextlib
import os
from pathlib import Path

from data_faults import NotHere

# A share of the CPU time per version: where its groups are, the file, what is written into it.
CPU = ((Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us", "{quota}"),
       (Path("/sys/fs/cgroup"), "cpu.max", "{quota} {period}"))  # fmt: skip
PERIOD_US = 100_000  # the kernel's default: for so long at most all wait in one go
MEMBERS = "cgroup.procs"


def made(root, name, files):
    """The folder of a new group in ``root``; None if it lacks one of the files, or this user may not make one."""
    folder = root / name
    with contextlib.suppress(OSError):
        folder.mkdir()
        if all((folder / file).exists() for file in files):
            return folder
        folder.rmdir()
    return None


def enter(folder, process):
    """Put a process, by its number, into a group; what it starts later is in it too."""
    with contextlib.suppress(ProcessLookupError):
        (folder / MEMBERS).write_text(str(process))


def dissolve(folder):
    """Put a group's processes into the one above it, and remove it."""
    while inside := (folder / MEMBERS).read_text().split():
        for number in inside:
            enter(folder.parent, number)
    folder.rmdir()


@contextlib.contextmanager
def slowed(share):
    """While the block runs, this process and all that it starts have together so much of the machine's CPU time.

    share: 0 to 1. Yields the number of cores that this is worth. Raises `NotHere` where that is not possible.
    """
    cores = share * len(os.sched_getaffinity(0))
    groups = ((made(root, f"faults-slowed-{os.getpid()}", [file]), file, text) for root, file, text in CPU)
    folder, file, text = next((group for group in groups if group[0]), (None, "", ""))
    if folder is None:
        raise NotHere("no control group that limits CPU time can be made here; that needs root")
    try:
        (folder / file).write_text(text.format(quota=round(cores * PERIOD_US), period=PERIOD_US))
        enter(folder, os.getpid())
        yield cores
    finally:
        dissolve(folder)
