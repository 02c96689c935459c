"""The events of a Horovod timeline, read a piece at a time, however long or damaged the file is.

The file is one JSON array of Chrome trace events, several on a line. What was killed while it wrote leaves it cut off,
sometimes in the middle of an event.
"""

import gzip
import json
import re
import zlib
from pathlib import Path

PIECE = 1 << 20  # bytes read at once
LONGEST = 16 << 20  # bytes without a boundary between events after which they are given up
BOUNDARIES = (b"},{", b"},\n{")
START = re.compile(r'\{\s*"(?:ph|name)"')
DECODER = json.JSONDecoder()


class Events:
    """Iterates over the events of a file (``.gz`` or not), each a dict; ``lost_bytes`` tells what could not be read."""

    def __init__(self, path):
        self._path = Path(path)
        self.lost_bytes = 0

    def __iter__(self):
        self.lost_bytes = 0
        rest = b""
        for piece in self._pieces():
            rest += piece
            end = max(rest.rfind(boundary) for boundary in BOUNDARIES) + 1
            if end > 0:
                yield from self._decoded(rest[:end])
                rest = rest[end:]
            elif len(rest) > LONGEST:
                yield from self._one_by_one(rest)
                rest = b""
        yield from self._decoded(rest)

    def _decoded(self, text):
        """The events in ``text``, which begins and ends between two events, if all is well."""
        try:
            found = json.loads(b"[" + text.strip(b"[],\n\r\t ") + b"]")
        except ValueError:
            yield from self._one_by_one(text)
        else:
            yield from (event for event in found if isinstance(event, dict))

    def _one_by_one(self, text):
        """What can be read of damaged text: each whole event, and the bytes between them counted as lost."""
        text, position = text.decode("utf-8", errors="replace"), 0
        while match := START.search(text, position):
            self._lose(text[position : match.start()])
            try:
                event, position = DECODER.raw_decode(text, match.start())
                yield event
            except ValueError:
                position = match.end()
                self._lose(match.group())
        self._lose(text[position:])

    def _lose(self, text):
        self.lost_bytes += len(text.strip("[],\n\r\t \x00"))

    def _pieces(self):
        if not self._path.exists():  # the run ended before it communicated
            return
        with gzip.open(self._path) if self._path.suffix == ".gz" else open(self._path, "rb") as handle:
            while True:
                try:
                    piece = handle.read(PIECE)
                except (EOFError, zlib.error, gzip.BadGzipFile):  # a compressed file that is cut off or damaged
                    self.lost_bytes += 1  # how much is missing nobody knows
                    return
                if not piece:
                    return
                yield piece
