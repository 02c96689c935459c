"""The events of a Horovod timeline, read piece by piece, however long or damaged the file is.

The file is one JSON array of Chrome trace events, several per line. If the run was killed, the file is truncated,
perhaps in the middle of an event.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from study.core.file_kinds import GZIP, first_bytes
from study.core.files import AnyPath

PIECE = 1 << 20  # bytes read at once
LONGEST = 16 << 20  # bytes without a boundary between events that are treated as damaged
BOUNDARIES = (b"},{", b"},\n{")
BETWEEN = b"[],\n\r\t "  # what may stand between events
START = re.compile(r'\{\s*"(?:ph|name)"')
DECODER = json.JSONDecoder()


class Events:
    """Iterates over the events of a file (``.gz`` or not), each a dict; ``lost_bytes`` counts unreadable bytes."""

    def __init__(self, path: AnyPath) -> None:
        self._path = Path(path)
        self.lost_bytes, self._has_begun = 0, False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.lost_bytes, self._has_begun = 0, False
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

    def _decoded(self, text: bytes) -> Iterator[dict[str, Any]]:
        """The events in ``text``; an undamaged text begins and ends between two events."""
        try:
            found = json.loads(b"[" + text.strip(BETWEEN) + b"]")
        except (ValueError, RecursionError):
            yield from self._one_by_one(text)
        else:
            self._lose(text[: len(text) - len(text.lstrip(BETWEEN))].decode())
            self._has_begun |= bool(found)
            yield from (event for event in found if isinstance(event, dict))

    def _one_by_one(self, damaged: bytes) -> Iterator[dict[str, Any]]:
        """Every complete event in damaged text; the bytes between them are counted as lost."""
        text, position = damaged.decode("utf-8", errors="replace"), 0
        while match := START.search(text, position):
            self._lose(text[position : match.start()])
            try:
                event, position = DECODER.raw_decode(text, match.start())
                self._has_begun = True
                yield event
            except (ValueError, RecursionError):
                position = match.end()
                self._lose(match.group())
        self._lose(text[position:])

    def _lose(self, text: str) -> None:
        """Count what stands between events. A second list of events counts too: the file has been written twice."""
        self.lost_bytes += len(text.strip(BETWEEN.decode() + "\0")) + (self._has_begun and "[" in text)

    def _pieces(self) -> Iterator[bytes]:
        if not self._path.exists():  # the run ended before it communicated
            return
        is_compressed = first_bytes(self._path, len(GZIP)) == GZIP  # whatever its name is
        with gzip.open(self._path) if is_compressed else open(self._path, "rb") as handle:
            is_empty = is_compressed or self._path.suffix == ".gz"  # only a timeline with a begin is compressed
            while True:
                try:
                    piece = handle.read(PIECE)
                except (EOFError, zlib.error, gzip.BadGzipFile):  # a compressed file that is truncated or damaged
                    self.lost_bytes += 1  # the true number is unknown
                    return
                if not piece:
                    self.lost_bytes += is_empty
                    return
                is_empty = is_empty and not piece.strip(BETWEEN + b"\0")
                yield piece
