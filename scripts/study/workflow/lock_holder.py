"""The holder of this folder's Snakemake lock: Snakemake's message names none, and advises ``--unlock`` in any case.

Removing the lock of a Snakemake that is still at work makes runs train twice. So each Snakemake writes a file about
itself beside its locks, which it removes with them.
"""

import os
import shlex
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from study.core.boot import read_boot_id
from study.core.errors import StudyError
from study.core.files import read_json, write_json
from study.instruments import host_processes

FILE = Path(".snakemake", "locks", "holder.json")
UNLOCK = "run snakemake --unlock, then the same command again"


@dataclass(frozen=True)
class Holder:
    """A Snakemake that holds locks. start: of its process, in clock ticks since the boot."""

    host: str
    boot_id: str | None
    pid_namespace: str
    pid: int
    start: int | None
    since: str
    command: str

    @property
    def is_visible(self) -> bool:
        """True if its process would be visible here: it is of this host, or of an earlier boot, and no container."""
        is_same_boot = (self.boot_id, self.pid_namespace) == (read_boot_id(), _read_pid_namespace())
        return is_same_boot or (self.host == socket.gethostname() and self.boot_id != read_boot_id())

    @property
    def is_alive(self) -> bool:
        """True if its process runs; only for a visible one."""
        return self.boot_id == read_boot_id() and self.start is not None and _read_start(self.pid) == self.start

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}: {self.command}"


def note_holder() -> None:
    """Write this process's `Holder` file; to be called while it holds the locks."""
    pid = os.getpid()
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    holder = Holder(
        socket.gethostname(), read_boot_id(), _read_pid_namespace(), pid, _read_start(pid), since, shlex.join(sys.argv)
    )
    write_json(FILE, asdict(holder))


def read_holder() -> Holder | None:
    """Read the last holder that was noted; None without one, or if its file cannot be read."""
    try:
        return Holder(**read_json(FILE))
    except (StudyError, TypeError):
        return None


def explain_lock() -> str:
    """Say why this folder is locked, and what to do."""
    holder = read_holder()
    if holder is None:
        return f"{Path.cwd()} is locked: if no Snakemake is at work in this folder, on any host, {UNLOCK}"
    if not holder.is_visible:
        return (
            f"{Path.cwd()} is locked by Snakemake, {holder}. Look there whether it is still at work: wait for it, or "
            f"end it; only if it has ended, {UNLOCK}"
        )
    if holder.is_alive:
        return (
            f"{Path.cwd()} is locked, since another Snakemake is at work here, {holder}. Wait until it ends, or end "
            f"it: kill {holder.pid}"
        )
    return f"{Path.cwd()} is still locked for a Snakemake that was killed ({holder}): {UNLOCK}"


def require_no_living_holder() -> None:
    """Refuse to remove the lock of a Snakemake that is running.

    Raises:
        StudyError: it is visible here, and alive.
    """
    holder = read_holder()
    if holder and holder.is_visible and holder.is_alive:
        raise StudyError(f"--unlock: {explain_lock()}")


def _read_pid_namespace() -> str:
    """Read the identity of this process's PID namespace; empty where there is none."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _read_start(pid: int) -> int | None:
    """Read the start of a process, in clock ticks since the boot; None without such a process."""
    try:
        process = host_processes.parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
    except OSError:
        return None
    return None if process is None else process.started
