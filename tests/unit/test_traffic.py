"""TCP bytes and busy cores by the kernel's counters, against known amounts."""

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
        time.sleep(0.1)  # for the last acknowledgement
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
        time.sleep(0.1)
        found = traffic.end()
    assert found["tcp_received_bytes"] == 5
    assert found["tcp_sent_bytes"] in (5, 6)  # the kernel counts the acknowledged SYN as one byte


def test_busy_cores():
    traffic = Traffic()
    traffic.begin()
    begun = time.process_time()
    while time.process_time() - begun < 0.3:
        pass
    assert 0.05 < traffic.end()["cpu_busy"] <= 1


def test_no_time_no_share():
    assert Traffic().end()["cpu_busy"] is None or Traffic().end()["cpu_busy"] <= 1
