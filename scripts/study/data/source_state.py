"""Whether a user's files are those that were converted: by names and sizes, and by content or times and a sample of it.

A conversion notes in its sidecar what it read. A change also counts if the files are older than the result, or lie in
an inner folder, of which Snakemake sees nothing.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from study.core import checked, digests
from study.core.errors import StudyError
from study.core.files import AnyPath, sha256
from study.data import file_sets

MOST_BYTES, MOST_FILES = 16_000_000, 2_000  # of all files together, whose content is compared
BLOCKS, BLOCK_BYTES = 256, 4096  # of larger ones: 1 MB, which takes a second on a slow file system
NOTE = "read"  # key of the sidecar
IN_ALL = ("files", "bytes", "sample")  # of a state: what another time of the files leaves as it is


@dataclass(frozen=True)
class State:
    """All files of a source. digest: of names, sizes, and contents or times. sample: of contents, if it is of times."""

    files: int
    bytes: int
    digest: str
    sample: str | None = None

    def is_as(self, noted: dict[str, Any]) -> bool:
        """Whether a sidecar's note says the same."""
        return all(noted[name] == value for name, value in asdict(self).items())

    @property
    def token(self) -> str:
        """A value that another state does not have."""
        return digests.short(hashlib.sha256(f"{self.digest}{self.sample or ''}".encode()).hexdigest())


def state(paths: Sequence[str]) -> State:
    """The state of files and folders with all that is in them; 100,000 files took 0.5 s.

    Raises `StudyError` for a link to nothing, or a folder that contains itself.
    """
    found, empty = _all_files(paths)
    size = sum(status.st_size for *_, status in found)
    by_content = size <= MOST_BYTES and len(found) <= MOST_FILES
    total = hashlib.sha256()
    for name, path, status in found:
        what = sha256(path) if by_content else status.st_mtime_ns
        total.update(f"{name}\0{status.st_size}\0{what}\0".encode(errors="surrogateescape"))
    for name in empty:
        total.update(f"{name}/\0".encode(errors="surrogateescape"))
    return State(len(found), size, total.hexdigest(), None if by_content else _sample(found, size))


def _sample(files: Sequence[tuple[str, str, os.stat_result]], size: int) -> str:
    """Digest of blocks that are spread evenly over all files together: a file that was replaced is read somewhere.

    A change of a few bytes that keeps size and time may be between them.
    """
    total, step, begin = hashlib.sha256(), max(1, size // BLOCKS), 0
    for _, path, status in files:
        first = -begin % step if step > BLOCK_BYTES else 0  # the first block in this file; else all is read
        if first < status.st_size:
            with open(path, "rb", buffering=0) as handle:
                for offset in range(first, status.st_size, step):
                    total.update(os.pread(handle.fileno(), BLOCK_BYTES, offset))
        begin += status.st_size
    return total.hexdigest()


def _all_files(paths: Sequence[str]) -> tuple[list[tuple[str, str, os.stat_result]], list[str]]:
    """(name from the given path on, path, status) of each file, and the names of those paths that are empty folders."""
    found: list[tuple[str, str, os.stat_result]] = []
    empty = []
    for place in map(Path, paths):
        if place.is_dir():
            begin = len(str(place)) - len(place.name)
            here = [(entry.path[begin:], entry.path, entry.stat()) for entry in file_sets.entries_below(str(place))]
            found += here
            empty += [] if here else [place.name]
        elif place.exists():
            found.append((place.name, str(place), place.stat()))
    return found, empty


@functools.cache
def _state_now(paths: tuple[str, ...]) -> State | None:
    """As `state`, once in a process; None if something cannot be read, which the conversion reports."""
    try:
        return state(paths)
    except (OSError, StudyError):
        return None


def note(before: State, paths: Sequence[str], token: str | None) -> dict[str, Any]:
    """What a sidecar keeps; raises `StudyError` if the files changed since ``before``, while they were converted."""
    if state(paths) != before:
        raise StudyError(f"{paths[0]}: was changed while it was converted; start again")
    return {**asdict(before), "token": token}


def token(paths: Sequence[str], sidecar: AnyPath) -> str | None:
    """What a conversion of ``paths`` has among its params: another value where the files are other ones than before.

    The sidecar keeps the token with which it was made. None, which adds no param, for a first conversion.
    """
    noted = _noted(sidecar)
    if noted is None:
        return None
    now = _state_now(tuple(paths)) if all(Path(path).exists() for path in paths) else None
    return noted["token"] if now is None or now.is_as(noted) else now.token


def has_changed(paths: Sequence[str], sidecar: AnyPath) -> bool:
    """Whether the files are other ones than those that a conversion read; False without a sidecar that can be read."""
    noted = _noted(sidecar)
    return noted is not None and token(paths, sidecar) != noted["token"]


def has_other_content(paths: Sequence[str], described: dict[str, Any]) -> bool:
    """Whether files certainly have another content than those from which a run's data were made, whatever their times.

    Of files that are not there, or whose state was not noted, nothing is certain. Of many images whose times alone
    differ, the sample decides.

    described: the sidecar, as in the run's provenance.
    """
    now, noted = _state_now(tuple(paths)) if all(Path(path).exists() for path in paths) else None, described.get(NOTE)
    if now is None or noted is None or now.is_as(noted):
        return False
    if now.sample is None or any(noted[name] != getattr(now, name) for name in IN_ALL):
        return True
    is_table = "columns" in described and len(paths) == 1
    return is_table and bool(described["source"]["sha256"] != _checksum_now(paths[0]))


@functools.cache
def _checksum_now(path: str) -> str:
    """The SHA-256 of a file, once in a process."""
    return sha256(path)


def _noted(sidecar: AnyPath) -> dict[str, Any] | None:
    """What a sidecar says of the files that were read; None if it cannot be read: its file is then converted."""
    declared = checked.named_schema("sidecar")["properties"][NOTE]  # the other keys may be long
    schema = {"type": "object", "required": [NOTE], "properties": {NOTE: declared}}
    try:
        found: dict[str, Any] = checked.load_json(Path(sidecar), schema)[NOTE]
    except StudyError:
        return None
    return found
