"""Which boot of this host it is. Imports little: each process of a run asks for it before anything else."""

from pathlib import Path


def read_boot_id() -> str | None:
    """The kernel's identifier of this host's current boot (proc_sys_kernel(5)); its monotonic clock counts from there.

    The same in all containers of a host; None where it cannot be read.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
