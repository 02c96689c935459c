"""Whether a process that a signal was sent to has ended."""

import time

import psutil

WAIT_S = 5


def has_ended(process):
    """Whether it is gone, or only waits to be reaped."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ends(process):
    """Whether it ends soon: a signal needs a moment, in which a busy machine runs others."""
    until = time.monotonic() + WAIT_S
    while not has_ended(process) and time.monotonic() < until:
        time.sleep(0.02)
    return has_ended(process)


def ends_by_number(file):
    """Whether the process whose number a file holds ends soon."""
    number = int(file.read_text())
    return not psutil.pid_exists(number) or ends(psutil.Process(number))
