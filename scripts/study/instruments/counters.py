"""The kernel's counters of what this process uses: processor time, memory, bytes read, TCP bytes, busy cores."""

import contextlib
import math
import os
import resource
import socket
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from study.core import cores
from study.core.cores import Limited
from study.core.files import AnyPath

TASKS = Path("/proc/self/task")
TICKS = os.sysconf("SC_CLK_TCK")
MEMORY_KIB = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024  # of this host
IO_COUNTERS = Path("/proc/self/io")  # see proc(5)

# Of struct tcp_info (linux/tcp.h): its size up to a field, and the offsets of fields.
UP_TO_RECEIVED, UP_TO_RETRANSMITTED = 136, 216
ACKED = 120  # tcpi_bytes_acked, then tcpi_bytes_received; unsigned 64 bits (Linux 4.1 and later)
NOT_SENT = 144  # tcpi_notsent_bytes, unsigned 32 bits
SENT = 200  # tcpi_bytes_sent, with what was sent again, then tcpi_bytes_retrans; both from Linux 4.19 on
IDLE_FIELDS = (3, 4)  # of a cpu line in /proc/stat: idle, iowait

MOST_BYTES_PER_S = 1e12  # of a process's reads or connections: more than a node's memory moves
TICKS_OFF_S = 0.1  # by which a counter of processor time may be off: it is counted in ticks, now and then late

Bytes = tuple[int, int]  # sent, received
Ticks = tuple[int, int]  # of a logical CPU: busy, all


def compute_increase(before: float | None, after: float | None, most: float, off: float = 0.0) -> float | None:
    """By how much a counter rose; None if that is unknown or cannot be: it went back, or rose by more than ``most``.

    off: by how much its values may be off. NaN is unknown too.
    """
    if before is None or after is None or not -off <= after - before <= 1.05 * most + off:
        return None
    return max(0.0, after - before)


def read_process_cpu_s() -> float:
    """Seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def sum_thread_cpu_s(threads: Iterable[int]) -> float:
    """Seconds of some threads of this process, by their ids; a thread that has ended counts nothing.

    To the nanosecond where the kernel keeps scheduling statistics, else in clock ticks, usually of 10 ms.
    """
    return sum(read_thread_cpu_s(threads).values())


def read_thread_cpu_s(threads: Iterable[int]) -> dict[int, float]:
    """Seconds of each of these threads, by its id, without those that have ended."""
    seconds = {}
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended
            seconds[thread] = _read_one_thread_s(TASKS / str(thread))
    return seconds


def compute_cpu_s_since(before: Mapping[int, float]) -> float | None:
    """Seconds of the threads of an earlier `read_thread_cpu_s` since then; None if they cannot be.

    A thread that has ended counts nothing.
    """
    most_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return _sum_known([compute_increase(before[thread], seconds, most_s, TICKS_OFF_S)
                       for thread, seconds in read_thread_cpu_s(before).items()])  # fmt: skip


def _read_one_thread_s(task: Path) -> float:
    """Processor seconds of a thread, by the scheduling statistics, else by clock ticks.

    A kernel without the statistics has no file, or zeros.
    """
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
        if (passed_ns := int((task / "schedstat").read_text().split()[0])) > 0:
            return passed_ns / 1e9
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS  # utime, stime: fields 14 and 15; two were cut off


def sum_other_cores_cpu_s(limited: Limited) -> float:
    """Upper limit of the processor seconds that this process used on other cores than those that it is kept on.

    These are the time before it was kept on them, and the time of each thread whose affinity mask allows other cores. A
    thread that has ended, and a child process, had the mask that they inherited.
    """
    return limited.before_s + sum_thread_cpu_s(each for each in list_threads() if not _read_mask(each) <= limited.cores)


def _read_mask(thread: int) -> frozenset[int]:
    """The cores that a thread may use; none for a thread that has ended."""
    try:
        return frozenset(os.sched_getaffinity(thread))
    except ProcessLookupError:
        return frozenset()


def list_threads() -> frozenset[int]:
    """The ids of this process's threads."""
    return frozenset(int(task.name) for task in TASKS.iterdir())


def read_peak_memory_mb(status: Path = Path("/proc/self/status")) -> float | None:
    """Largest resident set size of a process so far, in MB (10^6 bytes); None if it is unknown or cannot be.

    From VmHWM, which starts at 0 in each program; getrusage's ru_maxrss starts with the value of the parent.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:") and 0 < (kib := int(line.split()[1])) <= MEMORY_KIB:
                return kib * 1024 / 1e6
    return None


class ReadCounter:
    """Counts the bytes read inside the blocks that it surrounds.

    asked: bytes requested by read(), whether or not they come from the page cache. stored: bytes that came from
    storage. Both are None if the kernel keeps no such counters, or if they tell what cannot be. A mapped file is read
    without calls; it counts with its whole size under ``asked``, because each process that trains on it reads all of
    it.
    """

    def __init__(self) -> None:
        counted = _read_io_counters() is not None
        self.asked: int | None = 0 if counted else None
        self.stored: int | None = 0 if counted else None

    @contextlib.contextmanager
    def count(self) -> Iterator[None]:
        """Add the bytes that are read inside the block."""
        before, began = _read_io_counters(), time.monotonic()
        yield
        after, most = _read_io_counters(), MOST_BYTES_PER_S * (time.monotonic() - began)
        if self.asked is None or self.stored is None:
            return
        asked, stored = (
            None if before is None or after is None else compute_increase(before[place], after[place], most)
            for place in (0, 1)
        )
        if before is None or asked is None or stored is None:
            self.asked = self.stored = None
        else:
            self.asked, self.stored = self.asked + int(asked) - before[2], self.stored + int(stored)

    def add_mapped(self, path: AnyPath) -> None:
        """Add the size of a file that is mapped."""
        if self.asked is not None:
            self.asked += Path(path).stat().st_size


class Reads:
    """Counters of what one rank reads of a run's files.

    shared: of the files that all nodes share, copying them included. node: of its node's own copies, the check of the
    copies not included. staged: bytes that this rank copied to its node; None in a run without such copies.
    """

    def __init__(self) -> None:
        self.shared, self.node = ReadCounter(), ReadCounter()
        self.staged: int | None = None

    def as_mb(self) -> dict[str, float | None]:
        """The rank's counters for ``metrics.json``, in MB; those of copies only in a run with copies."""
        counters = {"shared_read_mb": _to_mb(self.shared.asked), "storage_read_mb": _to_mb(self.shared.stored)}
        if self.staged is not None:
            counters |= {
                "staged_mb": _to_mb(self.staged),
                "node_read_mb": _to_mb(self.node.asked),
                "node_storage_read_mb": _to_mb(self.node.stored),
            }
        return counters


def _to_mb(number: int | None) -> float | None:
    return None if number is None else number / 1e6


def _read_io_counters() -> tuple[int, int, int] | None:
    """Bytes asked for and bytes from storage until now, and how many bytes this look asks for itself."""
    try:
        content = IO_COUNTERS.read_bytes()
        number = {name: int(value) for name, value in (line.split(b":") for line in content.splitlines())}
        return number[b"rchar"], number[b"read_bytes"], len(content)
    except (OSError, ValueError, KeyError):
        return None


class Traffic:
    """TCP bytes of this process, and the busy share of the cores that it may use, from `begin` to `end`.

    Counts all TCP sockets of the process: Gloo's, gRPC's, and NCCL's or MPI's as far as they use TCP. Does not count
    shared memory, or sockets that are closed in between. Needs no privileges.
    """

    def __init__(self, without: Collection[int] = ()) -> None:
        """without: sockets that do not count, by inode."""
        self._without = without
        self._sockets: Mapping[int, Bytes] = {}
        self._cores: Mapping[int, Ticks] = {}
        self._began_s = 0.0

    def begin(self) -> None:
        """Remember the counters."""
        self._began_s = time.monotonic()
        self._sockets, self._cores = self._read_counters(), _read_core_ticks()

    def end(self) -> dict[str, float | None]:
        """``tcp_sent_bytes``, ``tcp_received_bytes`` and ``cpu_busy`` (0 to 1) since `begin`.

        Linux before 4.1 counts no bytes: they are 0. ``cpu_busy`` is None if no time has passed, or if the kernel's
        times of cores are hidden. Both are None if a counter went back, or rose by more than can be.
        """
        now, ticks = self._read_counters(), _read_core_ticks()
        seconds = time.monotonic() - self._began_s
        sent, received = (
            [
                compute_increase(self._sockets.get(inode, (0, 0))[way], counted[way], MOST_BYTES_PER_S * seconds)
                for inode, counted in now.items()
            ]
            for way in (0, 1)
        )
        return {
            "tcp_sent_bytes": _sum_known(sent),
            "tcp_received_bytes": _sum_known(received),
            "cpu_busy": compute_busy_share(self._cores, ticks, most_ticks=seconds * TICKS),
        }

    def _read_counters(self) -> dict[int, Bytes]:
        return {inode: counted for inode, counted in _read_sockets().items() if inode not in self._without}


def _sum_known(values: list[float | None]) -> float | None:
    """The sum of values; None if one of them is."""
    return None if None in values else sum(each for each in values if each is not None)


def _read_sockets() -> dict[int, Bytes]:
    """Counters of this process's TCP connections, by inode."""
    counters = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
            if target.startswith("socket:["):
                counted = _read_tcp_bytes(int(link.name))
                if counted:
                    counters[int(target[8:-1])] = counted
        except OSError:  # it was closed meanwhile
            continue
    return counters


def _read_tcp_bytes(descriptor: int) -> Bytes | None:
    """(sent, received) bytes of a TCP connection; None for another socket.

    Sent is what the process handed to the kernel. An older kernel only tells what the other side has acknowledged,
    which lags behind by what is under way: several per cent of a small epoch.
    """
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            return None
        information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, UP_TO_RETRANSMITTED)
    if len(information) < UP_TO_RECEIVED:
        return None
    acknowledged, received = struct.unpack_from("=QQ", information, ACKED)
    if len(information) < UP_TO_RETRANSMITTED:
        return acknowledged, received
    (waiting,) = struct.unpack_from("=I", information, NOT_SENT)
    sent, again = struct.unpack_from("=QQ", information, SENT)
    return sent - again + waiting, received


def compute_busy_share(
    before: Mapping[int, Ticks],
    after: Mapping[int, Ticks],
    root: Path = cores.ROOT,
    most_ticks: float = math.inf,
) -> float | None:
    """The share of the time of this process's cores that was used, 0 to 1; None if it is unknown or no time has passed.

    Two hyper-threads are one core, and share its time: a core both of whose hyper-threads are busy for half of the time
    was busy for all of it. A quota of control groups is what there is to use, where it is less.

    Args:
        before: the ticks of each logical CPU at the begin.
        after: at the end.
        root: below which /proc and /sys are read; tests have others.
        most_ticks: by how much the ticks of a CPU can rise.
    """
    off = TICKS_OFF_S * TICKS
    rises: dict[int, tuple[float, float]] = {}
    for cpu in before.keys() & after.keys():
        busy, every = (compute_increase(before[cpu][place], after[cpu][place], most_ticks, off) for place in (0, 1))
        if busy is None or every is None:
            return None
        rises[cpu] = busy, every
    used: list[float] = []  # of each core
    passed: list[float] = []
    for cpus in cores.group_by_core(sorted(rises), root):
        used.append(sum(rises[cpu][0] for cpu in cpus))
        passed.append(sum(rises[cpu][1] for cpu in cpus) / len(cpus))
    if not sum(passed):
        return None
    share = sum(min(each, most) for each, most in zip(used, passed, strict=True)) / sum(passed)
    quota = cores.read_cpu_quota(root)
    of_quota = sum(used) / (sum(passed) / len(passed) * quota) if quota else 0.0
    return min(1.0, max(share, of_quota))


def _read_core_ticks() -> dict[int, Ticks]:
    """Ticks of each logical CPU that this process may use; none where /proc/stat is not the kernel's."""
    ticks_of_cpus: dict[int, Ticks] = {}
    allowed = {f"cpu{number}": number for number in cores.list_allowed_cpus()} if cores.has_kernel_counts() else {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in allowed:
            ticks = [int(field) for field in fields[:8]]  # without guest, which user time includes
            ticks_of_cpus[allowed[name]] = sum(ticks) - sum(ticks[index] for index in IDLE_FIELDS), sum(ticks)
    return ticks_of_cpus
