"""Contents of records that have passed all checks before, so that each is checked once and not by each table again.

Whether a record is JSON that all readers understand alike, has its checksum and fits the schema follows from its bytes
and from the code alone. A digest of bytes that passed, with the code and the schema by which they were checked, is
noted in a hidden file of the machine's results folder. A record of which a byte was changed has another digest, so it
is checked in full, and so is each one where the note is missing or damaged or by other code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core.errors import StudyError
from study.core.files import parse_accepted_json, parse_json_file, write_text
from study.records import record

FILE = ".checked_records"  # in a machine's results folder
RUNS = "runs"  # the folder in it, see `study.core.paths.locate_run`
MOST_BYTES = 10_000_000  # of a note, 150,000 records; above, only those that its last reader has read are kept
DIGEST = re.compile("[0-9a-f]{64}")


class CheckedRecords:
    """Reads the records of a machine's results folder; as a context manager, it notes what has passed at the end."""

    def __init__(self, folder: str | Path) -> None:
        self._file = Path(folder, FILE)
        self._noted = _read_digests(self._file)
        self._passed: set[str] = set()

    def __enter__(self) -> CheckedRecords:
        return self

    def __exit__(self, *_: object) -> None:
        if new := self._passed - self._noted:
            _append(self._file, new)
            with contextlib.suppress(OSError):
                if self._file.stat().st_size > MOST_BYTES:
                    write_text(self._file, _lines(self._passed))

    def find_accepted(self, data: bytes) -> dict[str, Any] | None:
        """The record in a file's bytes, as `record.as_read`, if they have passed before; else None."""
        digest = _digest(data)
        if digest not in self._noted:
            return None
        self._passed.add(digest)
        return record.complete_parameters(parse_accepted_json(data))

    def note_accepted(self, data: bytes) -> None:
        """Remember bytes that `files.parse_json_file` and `record.as_read` have accepted."""
        self._passed.add(_digest(data))

    def read(self, path: str | Path) -> dict[str, Any]:
        """As `record.read_record`."""
        try:
            data = Path(path).read_bytes()
        except OSError:
            return record.read_record(path)  # which says why it cannot be read
        content = self.find_accepted(data)
        if content is None:
            content = record.as_read(parse_json_file(data, path), path)
            self.note_accepted(data)
        return content


def note_new(path: Path, made: Mapping[str, Any]) -> None:
    """Note the record that was written just now, if it is in a machine's results folder. made: it fits the schema."""
    if len(path.parents) < 5 or path.parents[3].name != RUNS:
        return
    with contextlib.suppress(OSError, StudyError):  # what is wrong with it, its first reader says
        data = path.read_bytes()
        if parse_json_file(data, path) == json.loads(json.dumps(made)):
            _append(path.parents[4] / FILE, [_digest(data)])


def _append(file: Path, digests: Iterable[str]) -> None:
    """Add to a note; processes on several nodes may do so at the same time, and a line that is mixed up matches none.

    Where it cannot be written, such as in somebody else's results, the next reader checks again.
    """
    with contextlib.suppress(OSError), open(file, "ab", buffering=0) as handle:
        handle.write(f"\n{_lines(digests)}".encode())  # a line that was cut off ends here


def _lines(digests: Iterable[str]) -> str:
    return "".join(f"{digest}\n" for digest in sorted(digests))


def _digest(data: bytes) -> str:
    """Of the bytes of a record, and of what has checked them."""
    return hashlib.sha256(_compute_checks_digest() + data).hexdigest()


@functools.cache
def _compute_checks_digest() -> bytes:
    """Digest of the code and of the schema by which records are checked."""
    return hashlib.sha256(f"{record.code()} {json.dumps(record.schema(), sort_keys=True)}".encode()).digest()


def _read_digests(file: Path) -> set[str]:
    """The digests that a note lists; none if it is missing or damaged."""
    try:
        return set(filter(DIGEST.fullmatch, file.read_text(encoding="ascii", errors="replace").split("\n")))
    except OSError:
        return set()
