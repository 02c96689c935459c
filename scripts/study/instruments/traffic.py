"""What an epoch costs the network and the processors, by the kernel's counters: TCP bytes of a process, busy cores."""

import os
import socket
import struct
from collections.abc import Collection, Mapping
from pathlib import Path

from study.core import cores

# Of struct tcp_info (linux/tcp.h): its size up to a field, and the offsets of fields.
UP_TO_RECEIVED, UP_TO_RETRANSMITTED = 136, 216
ACKED = 120  # tcpi_bytes_acked, then tcpi_bytes_received; unsigned 64 bits (Linux 4.1 and later)
NOT_SENT = 144  # tcpi_notsent_bytes, unsigned 32 bits
SENT = (
    200  # tcpi_bytes_sent, with what was sent again, then tcpi_bytes_retrans; unsigned 64 bits (Linux 4.19 and later)
)
IDLE_FIELDS = (3, 4)  # of a cpu line in /proc/stat: idle, iowait

Bytes = tuple[int, int]  # sent, received


Ticks = tuple[int, int]  # of a logical CPU: busy, all


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

    def begin(self) -> None:
        """Remember the counters."""
        self._sockets, self._cores = self._counted(), _core_ticks()

    def end(self) -> dict[str, float | None]:
        """``tcp_sent_bytes``, ``tcp_received_bytes`` and ``cpu_busy`` (0 to 1) since `begin`.

        Linux before 4.1 counts no bytes: they are 0. ``cpu_busy`` is None if no time has passed, or if the kernel's
        times of cores are hidden.
        """
        now = self._counted()
        deltas = [
            (sent - before[0], received - before[1])
            for identity, (sent, received) in now.items()
            for before in [self._sockets.get(identity, (0, 0))]
        ]
        return {
            "tcp_sent_bytes": sum(sent for sent, _ in deltas),
            "tcp_received_bytes": sum(received for _, received in deltas),
            "cpu_busy": busy_share(self._cores, _core_ticks()),
        }

    def _counted(self) -> dict[int, Bytes]:
        return {inode: counted for inode, counted in _sockets().items() if inode not in self._without}


def _sockets() -> dict[int, Bytes]:
    """Counters of this process's TCP connections, by inode."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
            if target.startswith("socket:["):
                counted = _tcp_bytes(int(link.name))
                if counted:
                    found[int(target[8:-1])] = counted
        except OSError:  # it was closed meanwhile
            continue
    return found


def _tcp_bytes(descriptor: int) -> Bytes | None:
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


def busy_share(before: Mapping[int, Ticks], after: Mapping[int, Ticks], root: Path = cores.ROOT) -> float | None:
    """The share of the time of this process's cores that was used, 0 to 1; None if no time has passed.

    Two hyper-threads are one core, and share its time: a core both of whose hyper-threads are busy for half of the time
    was busy for all of it. A quota of control groups is what there is to use, where it is less.

    Args:
        before: the ticks of each logical CPU at the begin.
        after: at the end.
        root: below which /proc and /sys are read; tests have others.
    """
    used: list[float] = []  # of each core
    passed: list[float] = []
    for cpus in cores.grouped(sorted(before.keys() & after.keys()), root):
        used.append(sum(after[cpu][0] - before[cpu][0] for cpu in cpus))
        passed.append(sum(after[cpu][1] - before[cpu][1] for cpu in cpus) / len(cpus))
    if not sum(passed):
        return None
    share = sum(min(each, most) for each, most in zip(used, passed, strict=True)) / sum(passed)
    quota = cores.quota(root)
    of_quota = sum(used) / (sum(passed) / len(passed) * quota) if quota else 0.0
    return min(1.0, max(share, of_quota))


def _core_ticks() -> dict[int, Ticks]:
    """Of each logical CPU that this process may use; none where /proc/stat is not the kernel's."""
    found: dict[int, Ticks] = {}
    allowed = {f"cpu{number}": number for number in cores.allowed()} if cores.counts_of_kernel() else {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in allowed:
            ticks = [int(field) for field in fields[:8]]  # without guest, which user time includes
            found[allowed[name]] = sum(ticks) - sum(ticks[index] for index in IDLE_FIELDS), sum(ticks)
    return found
