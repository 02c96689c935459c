"""The blocks that a member has ready: filled by the thread that shares them, emptied by its training."""

from __future__ import annotations

import collections
import threading
from abc import ABC, abstractmethod

from study.ensembles.content import Content, bytes_of
from study.ensembles.order import Block

HAS_ENDED = "this member has ended"


class Lost(Exception):
    """Blocks no longer come: the rank that makes them has ended, or this one has."""


class Buffer(ABC):
    """The blocks of a member in their order, from the first to the last."""

    @abstractmethod
    def put(self, block: Block, content: Content) -> None:
        """Add a block; waits until there is room. Nothing is kept once the member has ended."""

    @abstractmethod
    def get(self) -> Content:
        """The next block, in memory of this rank's own; waits for it.

        Raises:
            Lost: the rank that makes the block has ended, or this member has.
            Exception: the one with which sharing has failed.
        """

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """There will be no more blocks, because of this error."""

    @abstractmethod
    def close(self) -> None:
        """The member has ended: blocks for it are dropped."""

    @property
    @abstractmethod
    def fill(self) -> float:
        """The share of the buffer that is full, 0 to 1."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """The most bytes that this rank has held in it; memory that ranks share counts on one of them."""


class Queue(Buffer):
    """A buffer in the memory of its rank."""

    def __init__(self, capacity: int) -> None:
        """capacity: in blocks."""
        self._capacity = capacity
        self._blocks: collections.deque[Content] = collections.deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_closed = False
        self._bytes = self._most = 0

    def put(self, block: Block, content: Content) -> None:
        """Add a block; waits until there is room."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._blocks) < self._capacity)
            if self._is_closed:
                return
            self._blocks.append(content)
            self._bytes += bytes_of(content)
            self._most = max(self._most, self._bytes)
            self._changed.notify_all()

    def get(self) -> Content:
        """The next block; it is out of the buffer, and lives as long as it is used."""
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self._error or self._is_closed)
            if self._error:
                raise self._error
            if not self._blocks:
                raise Lost(HAS_ENDED)
            content = self._blocks.popleft()
            self._bytes -= bytes_of(content)
            self._changed.notify_all()
            return content

    def fail(self, error: BaseException) -> None:
        """Wake the member, which raises the error; blocks that are ready are not used any more."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """Drop what is there and what comes."""
        with self._changed:
            self._is_closed = True
            self._blocks.clear()
            self._changed.notify_all()

    @property
    def fill(self) -> float:
        """Blocks that are ready, of the most that there can be."""
        return len(self._blocks) / self._capacity

    @property
    def memory_bytes(self) -> int:
        """The most bytes that were ready at once."""
        return self._most
