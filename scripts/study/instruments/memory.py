"""Memory of this process, as Linux counts it."""

from pathlib import Path


def peak_memory_mb():
    """Largest resident set so far, in MB (10^6 bytes).

    From VmHWM, which starts anew with each program; getrusage's ru_maxrss begins with the parent's.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError("/proc/self/status has no VmHWM")
