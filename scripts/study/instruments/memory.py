"""Memory of this process, as reported by Linux."""

from pathlib import Path


def peak_memory_mb() -> float:
    """Largest resident set size so far, in MB (10^6 bytes).

    From VmHWM, which starts at 0 in each program; getrusage's ru_maxrss starts with the value of the parent.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError("/proc/self/status has no VmHWM")
