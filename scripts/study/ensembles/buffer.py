"""Buffers of blocks that a member has ready: the thread that shares blocks fills one, training empties it."""

from __future__ import annotations

import collections
import threading
from abc import ABC, abstractmethod

from study.ensembles.content import Content, count_bytes
from study.ensembles.order import Block

HAS_ENDED = "this member has ended"


class Lost(Exception):
    """Raised when no more blocks come: the rank that makes them has ended, or this one has."""


class Buffer(ABC):
    """A first-in, first-out buffer of a member's blocks."""

    @abstractmethod
    def put(self, block: Block, content: Content) -> None:
        """Add a block, waiting until there is room; after the member has ended, the block is dropped."""

    @abstractmethod
    def get(self) -> Content:
        """Remove and return the next block, in memory of this rank's own; waits for it.

        Raises:
            Lost: the rank that makes the block has ended, or this member has.
            Exception: the one with which sharing has failed.
        """

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Tell the reader that no more blocks come because of ``error``."""

    @abstractmethod
    def close(self) -> None:
        """End reading: blocks for this member are dropped from now on."""

    @property
    @abstractmethod
    def fill(self) -> float:
        """Share of the buffer that is full, 0 to 1."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Peak bytes that this rank held in it; memory that ranks share counts on one of them."""


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
        """Add a block, waiting until there is room."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._blocks) < self._capacity)
            if self._is_closed:
                return
            self._blocks.append(content)
            self._bytes += count_bytes(content)
            self._most = max(self._most, self._bytes)
            self._changed.notify_all()

    def get(self) -> Content:
        """Remove and return the next block; waits for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self._error or self._is_closed)
            if self._error:
                raise self._error
            if not self._blocks:
                raise Lost(HAS_ENDED)
            content = self._blocks.popleft()
            self._bytes -= count_bytes(content)
            self._changed.notify_all()
            return content

    def fail(self, error: BaseException) -> None:
        """Make the member's next `get` raise ``error``; blocks that are ready are not used any more."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """Drop the blocks in the buffer and all that come."""
        with self._changed:
            self._is_closed = True
            self._blocks.clear()
            self._changed.notify_all()

    @property
    def fill(self) -> float:
        """Share of the capacity that is filled, 0 to 1."""
        return len(self._blocks) / self._capacity

    @property
    def memory_bytes(self) -> int:
        """Peak bytes of blocks that were ready at once."""
        return self._most
