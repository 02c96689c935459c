"""A process at one moment, from its ``stat`` (proc_pid_stat(5)), and names of those that only serve a run."""

import os
import time
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x00200000  # PF_KTHREAD, a flag in /proc/PID/stat
# Names of processes that only start a run's processes and pass on what they print: the run's, if all their children
# are. They are started by daemons, or over ssh, so their environment does not say it. The kernel keeps 15 characters.
SERVING = frozenset((
    "slurmstepd", "srun", "orted", "prted", "prterun", "mpirun", "mpiexec", "hydra_pmi_proxy", "hydra_bstrap_pr",
    "mpiexec.hydra", "mpispawn", "jsrun", "jsmd", "aprun", "apinit", "apshepherd", "palsd", "flux-shell", "sshd",
    "sshd-session", "sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh",
))  # fmt: skip
NO_RANKS = SERVING | {"ssh", "flux", "flux-run"}  # and of those that a run starts to reach other hosts


class Process(NamedTuple):
    """A process at one moment.

    seconds: processor time, its ended children's included; own_s: without these. threads: their number. cpu: the
    logical CPU on which its first thread ran last; None where that is not told.
    """

    name: str
    parent: int
    started: int
    is_kernel: bool
    seconds: float
    own_s: float
    threads: int
    cpu: int | None


def parsed(stat: bytes) -> Process | None:
    """A process from the text of its ``stat``; None if it has ended. The name may have blanks and brackets."""
    before, _, after = stat.rpartition(b")")
    fields = after.split()
    if len(fields) < 20:
        return None
    own, ended = (sum(map(int, fields[place : place + 2])) / TICKS for place in (11, 13))
    # Any text may be a name; a list of them has commas.
    name = " ".join(before.partition(b"(")[2].decode("utf-8", "replace").replace(",", " ").split()) or "?"
    is_kernel, cpu = bool(int(fields[6]) & KERNEL_THREAD), int(fields[36]) if len(fields) > 36 else None
    return Process(name, int(fields[1]), int(fields[19]), is_kernel, own + ended, own, int(fields[17]), cpu)


def age_s(process: Process) -> float:
    """Seconds since its start."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / TICKS
