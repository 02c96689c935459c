"""TCP bytes and busy cores by the kernel's counters, against known amounts."""

import contextlib
import socket
import threading
import time

from study.instruments.traffic import Traffic

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


def test_a_new_connection_counts_and_other_sockets_do_not():
    traffic = Traffic()
    traffic.begin()
    local = socket.socketpair()
    local[0].sendall(b"not TCP")
    one, other = connected()
    with one, other, local[0], local[1]:
        one.sendall(b"12345")
        received(other, 5)
        found = traffic.end()
    assert (found["tcp_sent_bytes"], found["tcp_received_bytes"]) == (5, 5)


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


def test_no_time_no_share():
    assert Traffic().end()["cpu_busy"] is None or Traffic().end()["cpu_busy"] <= 1
