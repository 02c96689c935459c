"""Copies of a program's output, line by line: its head and its tail up to a limit, whatever its bytes are."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from study.core.quantities import remove_colours

HEAD_BYTES = 4 << 20  # that are copied at once
TAIL_BYTES = 1 << 20  # of what follows, copied at the end
LONGEST_LINE = 64 << 10  # bytes; a longer one is cut into several
LAST_LINES = 40


class OutputCopier:
    """A thread that copies a pipe to a stream, and hands each line to a function.

    Args:
        source: file descriptor of the pipe, which it closes.
        target: receives UTF-8; bytes that are not are replaced.
        take: called with each line, without its end.
    """

    def __init__(self, source: int, target: BinaryIO, take: Callable[[bytes], None]) -> None:
        self._source, self._target, self._take = source, target, take
        self._left, self._tail, self._tail_bytes, self._dropped = HEAD_BYTES, deque[bytes](), 0, 0
        self.bytes = 0
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def join(self, limit_s: float) -> None:
        """Wait for the end of the pipe; a process that was left behind may hold it open."""
        self._thread.join(limit_s)

    def _copy(self) -> None:
        """Copy the pipe until its end: the thread's function."""
        unfinished = b""
        while data := os.read(self._source, 1 << 16):
            self.bytes += len(data)
            *lines, unfinished = (unfinished + data).split(b"\n")
            for line in lines:
                self._take_line(line)
            while len(unfinished) > LONGEST_LINE:
                self._take_line(unfinished[:LONGEST_LINE])
                unfinished = unfinished[LONGEST_LINE:]
        if unfinished:
            self._take_line(unfinished)
        if self._dropped:
            self._write(f"[{self._dropped} bytes of output are left out here]".encode())
        for line in self._tail:
            self._write(line)
        os.close(self._source)

    def _take_line(self, line: bytes) -> None:
        """Hand a line to the function, and write it, or keep it for the tail."""
        if b"\r" in line:  # of a progress bar, the last state that is not blank
            states = line.split(b"\r")
            line = next(
                (each for each in reversed(states) if remove_colours(each.decode(errors="replace")).strip()), b""
            )
        self._take(line)
        text = line.decode(errors="replace")
        if text.strip():
            self.last.append(text)
        if self._left > 0:
            self._left -= len(line) + 1
            self._write(line)
            return
        self._tail.append(line)
        self._tail_bytes += len(line) + 1
        while self._tail_bytes > TAIL_BYTES:
            gone = len(self._tail.popleft()) + 1
            self._tail_bytes -= gone
            self._dropped += gone

    def _write(self, line: bytes) -> None:
        """Write a line to the target, unless that is closed."""
        try:
            self._target.write(line.decode(errors="replace").encode() + b"\n")
            self._target.flush()
        except (OSError, ValueError):  # the pipe must still be emptied, or the program stops
            self._left = 0
