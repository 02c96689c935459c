"""TCP bytes and busy cores by the kernel's counters, against known amounts."""

import contextlib
import socket
import threading
import time

import pytest

from study.instruments.counters import Traffic, compute_busy_share

AMOUNT = 12_345_678


def connected():
    listener = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    listener.close()
    return one, other


def received(connection, amount):
    while amount:
        amount -= len(connection.recv(min(amount, 1 << 16)))


def test_bytes_are_counted_exactly():
    one, other = connected()
    with one, other:
        one.sendall(b"before")
        received(other, 6)
        traffic = Traffic()
        traffic.begin()
        reader = threading.Thread(target=received, args=(other, AMOUNT))
        reader.start()
        one.sendall(bytes(AMOUNT))
        reader.join()
        found = traffic.end()
    assert (found["tcp_sent_bytes"], found["tcp_received_bytes"]) == (AMOUNT, AMOUNT)


def test_what_the_other_side_has_not_acknowledged_yet_is_sent_too():
    """Nobody reads: most of it waits in the kernel of the sender, as the end of an epoch's last allreduce may."""
    one, other = connected()
    with one, other:
        traffic = Traffic()
        traffic.begin()
        one.setblocking(False)
        handed_over = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                handed_over += one.send(bytes(1 << 16))
        assert handed_over > 100_000
        assert traffic.end()["tcp_sent_bytes"] == handed_over


def test_busy_cores():
    traffic = Traffic()
    traffic.begin()
    begun = time.process_time()
    while time.process_time() - begun < 0.3:
        pass
    assert 0.05 < traffic.end()["cpu_busy"] <= 1


@pytest.mark.parametrize(
    ("siblings", "quota", "share"),
    [
        (["0", "1", "2", "3"], "max", 0.5),
        (["0,2", "1,3", "0,2", "1,3"], "max", 1.0),  # one hyper-thread of each core worked all the time
        (["0-1", "0-1", "2-3", "2-3"], "max", 0.5),  # both of one core did, and the other core slept
        (["0", "1", "2", "3"], "200000", 1.0),
        (["0", "1", "2", "3"], "800000", 0.5),
        ([], "max", 0.5),
    ],
)
def test_two_hyper_threads_are_one_core(tmp_path, siblings, quota, share):
    """CPUs 0 and 1 of four are busy."""
    for cpu, listed in enumerate(siblings):
        path = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(f"{listed}\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (tmp_path / "proc/self/mountinfo").write_text("30 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "sys/fs/cgroup/job").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/job/cpu.max").write_text(f"{quota} 100000\n")
    before = dict.fromkeys(range(4), (7, 1000))
    after = {0: (107, 1100), 1: (107, 1100), 2: (7, 1100), 3: (7, 1100)}
    assert compute_busy_share(before, after, tmp_path) == share
