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


@dataclass(frozen=True)
class State:
    """All files of a source. digest: of names, sizes, and contents or times. sample: of contents, if it is of times."""

    files: int
    bytes: int
    digest: str
    sample: str | None = None

    def is_as(self, noted: dict[str, Any]) -> bool:
        """Whether a sidecar's note says the same. An older version's has no sample."""
        noted = {"sample": self.sample, **noted}
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


def token(paths: Sequence[str], sidecar: AnyPath, classes: list[str] | None = None) -> str | None:
    """What a conversion of ``paths`` has among its params: another value where the files are other ones than before.

    The sidecar keeps the token with which it was made. None, which adds no param, for a first conversion, and for one
    of an older version, unless size, content or number of files tell a change. classes: the names of the folders of
    classes, if that is what the paths are.
    """
    described = _described(sidecar)
    if described is None:
        return None
    noted = described.get(NOTE)
    now = _state_now(tuple(paths)) if all(Path(path).exists() for path in paths) else None
    if noted is None:
        return now.token if now is not None and _differs(described, now, paths, classes) else None
    return noted["token"] if now is None or now.is_as(noted) else now.token


def _differs(described: dict[str, Any], now: State, paths: Sequence[str], classes: list[str] | None) -> bool:
    """Whether files are certainly not those of a conversion that kept no state."""
    source = described["source"]
    if classes is not None:
        held = (described["shape"][0], source["bytes"], described.get("class_names"))
        return bool(held != (now.files, now.bytes, classes))
    if "codes" not in described or len(paths) > 1:
        return False
    return bool(source["bytes"] != now.bytes or (now.bytes <= MOST_BYTES and source["sha256"] != sha256(paths[0])))


def _described(sidecar: AnyPath) -> dict[str, Any] | None:
    """The content of a sidecar; None if there is none that can be read: its file is then converted."""
    known = checked.named_schema("sidecar")["properties"]
    used = {name: known[name] for name in ("source", "shape", NOTE)}  # the others may be long
    try:
        found: dict[str, Any] = checked.load_json(
            Path(sidecar), {"type": "object", "required": ["source", "shape"], "properties": used}
        )
    except StudyError:
        return None
    return found
