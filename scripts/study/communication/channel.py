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
    """The channel, seen from one process; its creation waits for all processes.

    A process that has ended is noticed when it is spoken to: then it is in ``lost``, and its answers are None.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lost: set[int] = set()
        self._others: dict[int, Connection] = {}
        address, key = _address(place.channel), place.key.encode()
        if place.number == 0:
            with Listener(address, backlog=place.size) as listener:
                while len(self._others) < place.size - 1:
                    connection = listener.accept()
                    if (number := _admit(connection, key)) is not None:
                        self._others[number] = connection
        else:
            self._others[0] = _connected(address, key)
            self._others[0].send(place.number)

    def sockets(self) -> frozenset[int]:
        """The inodes of its sockets in this process."""
        return frozenset(os.fstat(connection.fileno()).st_ino for connection in self._others.values())

    def ask(self, question: Any) -> dict[int, Any]:
        """The answers of the other processes, {number: answer}; process 0 only. All work on it at the same time."""
        for number, connection in self._others.items():
            with self._noticed(number):
                connection.send(question)
        answers = {}
        for number, connection in sorted(self._others.items()):
            with self._noticed(number):
                answers[number] = connection.recv()
        return answers

    def asked(self) -> Any:
        """The next question of process 0. Raises `EOFError` if it has ended."""
        return self._others[0].recv()

    def answer(self, value: Any = None) -> None:
        """Answer the last question."""
        self._others[0].send(value)

    def close(self) -> None:
        """Close all sockets."""
        for connection in self._others.values():
            connection.close()

    @contextlib.contextmanager
    def _noticed(self, number: int) -> Any:
        try:
            yield
        except (EOFError, OSError):
            self.lost.add(number)


def _address(channel: str) -> str | tuple[str, int]:
    """Of a Unix socket, or ``host:port`` of TCP; see `study.communication.roles.Place`."""
    host, colon, port = channel.partition(":")
    return (host, int(port)) if colon else f"\0{channel}"


def _admit(connection: Connection, key: bytes) -> int | None:
    """The number of the process at the other end; None, and the connection is closed, if it is none of the run.

    On one host, everybody can connect. Whoever is another user is not listened to, nor for long who says nothing.
    """
    with socket.socket(fileno=os.dup(connection.fileno())) as bare:
        try:
            if bare.family == socket.AF_UNIX and locks.read_peer(bare) != os.geteuid():
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


def _connected(address: str | tuple[str, int], key: bytes) -> Connection:
    """A connection to process 0, as soon as it listens; a launcher that loses it ends this process.

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
        if bare.family == socket.AF_UNIX and (user := locks.read_peer(bare)) != os.geteuid():
            raise StudyError(f"user {user} has taken the name of this run's channel, @{str(address)[1:]}; run it again")
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    return connection
