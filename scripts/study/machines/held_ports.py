"""Free ports of this host that nobody else gets until a process of the run listens on them.

    python -I -S held_ports.py NUMBER     prints the ports as a JSON list, and holds them until it is ended

It imports only the standard library, since it is also started on other hosts.
"""

import json
import signal
import socket
import sys


def hold(number: int) -> list[socket.socket]:
    """Sockets that are bound to free ports of all interfaces but do not listen.

    With SO_REUSEADDR another socket with that option may listen on the port as long as this one does not.
    """
    held = []
    for _ in range(number):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("", 0))
        held.append(one)
    return held


def ports(held: list[socket.socket]) -> list[int]:
    """Their ports."""
    return [each.getsockname()[1] for each in held]


def main() -> None:
    """Hold as many as the command line says."""
    held = hold(int(sys.argv[1]))
    print(json.dumps(ports(held)), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
