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

from study.core import digests, validation
from study.core.errors import StudyError
from study.core.files import AnyPath, sha256
from study.data import file_sets

MOST_BYTES, MOST_FILES = 16_000_000, 2_000  # of all files together, whose content is compared
BLOCKS, BLOCK_BYTES = 256, 4096  # of larger ones: 1 MB, which takes a second on a slow file system
NOTE = "read"  # key of the sidecar
IN_ALL = ("files", "bytes", "sample")  # of a state: what another time of the files leaves as it is


@dataclass(frozen=True)
class State:
    """State of a source's files. digest: of names, sizes, and contents or times. sample: of contents, if of times."""

    files: int
    bytes: int
    digest: str
    sample: str | None = None

    def is_noted_as(self, noted: dict[str, Any]) -> bool:
        """True if a sidecar's note has this state."""
        return all(noted[name] == value for name, value in asdict(self).items())

    @property
    def token(self) -> str:
        """A short value that is different for every other state."""
        return digests.shorten_digest(hashlib.sha256(f"{self.digest}{self.sample or ''}".encode()).hexdigest())


def read_state(paths: Sequence[str]) -> State:
    """The state of files and of folders with their content; 100,000 files took 0.5 s.

    Raises `StudyError` for a link to nothing, or a folder that contains itself.
    """
    files, empty = _list_all_files(paths)
    size = sum(status.st_size for *_, status in files)
    by_content = size <= MOST_BYTES and len(files) <= MOST_FILES
    total = hashlib.sha256()
    for name, path, status in files:
        version = sha256(path) if by_content else status.st_mtime_ns
        total.update(f"{name}\0{status.st_size}\0{version}\0".encode(errors="surrogateescape"))
    for name in empty:
        total.update(f"{name}/\0".encode(errors="surrogateescape"))
    return State(len(files), size, total.hexdigest(), None if by_content else _digest_sample(files, size))


def _digest_sample(files: Sequence[tuple[str, str, os.stat_result]], size: int) -> str:
    """Digest of blocks spread evenly over all files, so that a replaced file is read somewhere.

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


def _list_all_files(paths: Sequence[str]) -> tuple[list[tuple[str, str, os.stat_result]], list[str]]:
    """(name below the given path, path, status) of each file, and the names of empty folders."""
    files: list[tuple[str, str, os.stat_result]] = []
    empty = []
    for place in map(Path, paths):
        if place.is_dir():
            begin = len(str(place)) - len(place.name)
            here = [(entry.path[begin:], entry.path, entry.stat()) for entry in file_sets.iterate_entries(str(place))]
            files += here
            empty += [] if here else [place.name]
        elif place.exists():
            files.append((place.name, str(place), place.stat()))
    return files, empty


@functools.cache
def _read_state_once(paths: tuple[str, ...]) -> State | None:
    """The state of files, cached in this process; None if one cannot be read, which the conversion reports."""
    try:
        return read_state(paths)
    except (OSError, StudyError):
        return None


def make_note(before: State, paths: Sequence[str], token: str | None) -> dict[str, Any]:
    """The state for a sidecar; raises `StudyError` if the files changed since ``before``."""
    if read_state(paths) != before:
        raise StudyError(f"{paths[0]}: was changed while it was converted; start again")
    return {**asdict(before), "token": token}


def choose_token(paths: Sequence[str], sidecar: AnyPath) -> str | None:
    """A rule's param that changes if the files are other ones than those converted before.

    The sidecar keeps the token with which it was made. None, which adds no param, for a first conversion.
    """
    noted = _read_note(sidecar)
    if noted is None:
        return None
    now = _read_state_once(tuple(paths)) if all(Path(path).exists() for path in paths) else None
    return noted["token"] if now is None or now.is_noted_as(noted) else now.token


def has_changed(paths: Sequence[str], sidecar: AnyPath) -> bool:
    """True if the files differ from those that a conversion read; False without a readable sidecar."""
    noted = _read_note(sidecar)
    return noted is not None and choose_token(paths, sidecar) != noted["token"]


def has_other_content(paths: Sequence[str], described: dict[str, Any]) -> bool:
    """True if files certainly differ in content from those of a run's data, whatever their times.

    Of files that are not there, or whose state was not noted, nothing is certain. Of many images whose times alone
    differ, the sample decides.

    described: the sidecar, as in the run's provenance.
    """
    now, noted = (
        _read_state_once(tuple(paths)) if all(Path(path).exists() for path in paths) else None,
        described.get(NOTE),
    )
    if now is None or noted is None or now.is_noted_as(noted):
        return False
    if now.sample is None or any(noted[name] != getattr(now, name) for name in IN_ALL):
        return True
    is_table = "columns" in described and len(paths) == 1
    return is_table and bool(described["source"]["sha256"] != _compute_checksum_once(paths[0]))


@functools.cache
def _compute_checksum_once(path: str) -> str:
    """SHA-256 of a file, cached in this process."""
    return sha256(path)


def _read_note(sidecar: AnyPath) -> dict[str, Any] | None:
    """The note of a sidecar on the files that were read; None if unreadable, so that they are converted again."""
    declared = validation.read_schema("sidecar")["properties"][NOTE]  # the other keys may be long
    schema = {"type": "object", "required": [NOTE], "properties": {NOTE: declared}}
    try:
        note: dict[str, Any] = validation.load_valid_json(Path(sidecar), schema)[NOTE]
    except StudyError:
        return None
    return note
