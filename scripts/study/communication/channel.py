"""The control channel between the processes of a run: small objects over Unix sockets of one host, or over TCP.

Process 0 listens, the others connect. `study.instruments.counters` counts TCP only, and leaves out the sockets
that a channel over TCP names. The name of a Unix socket is in Linux's abstract namespace: no file remains, however a
process ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from study.communication.roles import Place
from study.core import locks
from study.core.errors import StudyError

RETRY_S = 0.05
PATIENCE_S = 10  # with a process that has connected and says nothing


class Channel:
    """The control channel, seen from one process; its creation waits for all processes.

    A process that has ended is noticed when it is spoken to: then it is in ``lost``, and its answers are None.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lost: set[int] = set()
        self._others: dict[int, Connection] = {}
        address, key = _parse_address(place.channel), place.key.encode()
        if place.number == 0:
            with Listener(address, backlog=place.size) as listener:
                while len(self._others) < place.size - 1:
                    connection = listener.accept()
                    if (number := _admit(connection, key)) is not None:
                        self._others[number] = connection
        else:
            self._others[0] = _connect(address, key)
            self._others[0].send(place.number)

    def list_sockets(self) -> frozenset[int]:
        """The inodes of the channel's sockets in this process."""
        return frozenset(os.fstat(connection.fileno()).st_ino for connection in self._others.values())

    def ask(self, question: Any) -> dict[int, Any]:
        """Send a question to all other processes, and return their answers, {number: answer}; process 0 only.

        All work on it at the same time.
        """
        for number, connection in self._others.items():
            with self._note_loss(number):
                connection.send(question)
        answers = {}
        for number, connection in sorted(self._others.items()):
            with self._note_loss(number):
                answers[number] = connection.recv()
        return answers

    def receive(self) -> Any:
        """Wait for the next question of process 0, and return it. Raises `EOFError` if process 0 has ended."""
        return self._others[0].recv()

    def answer(self, value: Any = None) -> None:
        """Send process 0 the answer to its last question."""
        self._others[0].send(value)

    def close(self) -> None:
        """Close all sockets."""
        for connection in self._others.values():
            connection.close()

    @contextlib.contextmanager
    def _note_loss(self, number: int) -> Any:
        """Add a process to ``lost`` if the connection to it breaks within the ``with`` block."""
        try:
            yield
        except (EOFError, OSError):
            self.lost.add(number)


def _parse_address(channel: str) -> str | tuple[str, int]:
    """The address of a channel for `Client` and `Listener`: a Unix socket's name, or (host, port) of TCP."""
    host, colon, port = channel.partition(":")
    return (host, int(port)) if colon else f"\0{channel}"


def _admit(connection: Connection, key: bytes) -> int | None:
    """Authenticate the process at the other end, and return its number; None if it is none of the run.

    The connection is then closed.

    On one host, every user can connect. Other users are refused, and a process that sends nothing after `PATIENCE_S`.
    """
    with socket.socket(fileno=os.dup(connection.fileno())) as bare:
        try:
            if bare.family == socket.AF_UNIX and locks.read_peer_user(bare) != os.geteuid():
                raise AuthenticationError("another user")
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PATIENCE_S, 0))
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            number: int = connection.recv()
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            return None
    return number


def _connect(address: str | tuple[str, int], key: bytes) -> Connection:
    """Connect to process 0, as soon as it listens; a launcher that loses process 0 ends this process.

    Raises:
        StudyError: another user listens there, who could learn from answers or send pickles.
    """
    while True:
        try:
            connection = Client(address)
            break
        except (ConnectionRefusedError, FileNotFoundError):
            time.sleep(RETRY_S)
    with socket.socket(fileno=os.dup(connection.fileno())) as bare:
        if bare.family == socket.AF_UNIX and (user := locks.read_peer_user(bare)) != os.geteuid():
            raise StudyError(f"user {user} has taken the name of this run's channel, @{str(address)[1:]}; run it again")
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    return connection
