"""Processor time, user and system, of this process and of its threads, as Linux counts it."""

import contextlib
import os
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path

from study.core.cores import Limited

TASKS = Path("/proc/self/task")
TICKS = os.sysconf("SC_CLK_TCK")


def of_process_s() -> float:
    """Seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def of_threads_s(threads: Iterable[int]) -> float:
    """Seconds of some threads of this process, by their ids; a thread that has ended counts nothing.

    To the nanosecond where the kernel keeps scheduling statistics, else in clock ticks, usually of 10 ms.
    """
    return sum(of_each_thread_s(threads).values())


def of_each_thread_s(threads: Iterable[int]) -> dict[int, float]:
    """Seconds of each of these threads, by its id, without those that have ended."""
    found = {}
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended
            found[thread] = _of_thread_s(TASKS / str(thread))
    return found


def since_s(before: Mapping[int, float]) -> float:
    """Seconds of the threads of an earlier `of_each_thread_s` since then. A thread that has ended counts nothing."""
    return sum(seconds - before[thread] for thread, seconds in of_each_thread_s(before).items())


def _of_thread_s(task: Path) -> float:
    """By the scheduling statistics; a kernel that keeps none lacks their file, or has only zeros in it."""
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
        if (passed_ns := int((task / "schedstat").read_text().split()[0])) > 0:
            return passed_ns / 1e9
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS  # utime, stime: fields 14 and 15; two were cut off


def on_other_cores_s(limited: Limited) -> float:
    """The most seconds that this process can have used on other cores than those that it is kept on.

    These are the time before it was kept on them, and the time of each thread whose affinity mask allows other cores. A
    thread that has ended, and a child process, had the mask that they inherited.
    """
    return limited.before_s + of_threads_s(each for each in threads() if not _mask(each) <= limited.cores)


def _mask(thread: int) -> frozenset[int]:
    """The cores that a thread may use; none for a thread that has ended."""
    try:
        return frozenset(os.sched_getaffinity(thread))
    except ProcessLookupError:
        return frozenset()


def threads() -> frozenset[int]:
    """The ids of this process's threads."""
    return frozenset(int(task.name) for task in TASKS.iterdir())
