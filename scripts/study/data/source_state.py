"""Whether a user's files are those that were converted: by names, sizes and times, and of small ones by their content.

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

from study.core import checked
from study.core.errors import StudyError
from study.core.files import AnyPath, sha256
from study.data import file_sets

MOST_BYTES, MOST_FILES = 16_000_000, 2_000  # of all files together, whose content is compared
NOTE = "read"  # key of the sidecar


@dataclass(frozen=True)
class State:
    """All files of a source. digest: of names, sizes, and contents or times."""

    files: int
    bytes: int
    digest: str


def state(paths: Sequence[str]) -> State:
    """The state of files and folders with all that is in them; 100,000 files took 0.5 s.

    Raises `StudyError` for a link to nothing, or a folder that contains itself.
    """
    found = _all_files(paths)
    size = sum(status.st_size for *_, status in found)
    by_content = size <= MOST_BYTES and len(found) <= MOST_FILES
    total = hashlib.sha256()
    for name, path, status in found:
        what = sha256(path) if by_content else status.st_mtime_ns
        total.update(f"{name}\0{status.st_size}\0{what}\0".encode(errors="surrogateescape"))
    return State(len(found), size, total.hexdigest())


def _all_files(paths: Sequence[str]) -> list[tuple[str, str, os.stat_result]]:
    """(name from the given path on, path, status) of each file."""
    found: list[tuple[str, str, os.stat_result]] = []
    for place in map(Path, paths):
        if place.is_dir():
            begin = len(str(place)) - len(place.name)
            found += [(entry.path[begin:], entry.path, entry.stat()) for entry in file_sets.entries_below(str(place))]
        elif place.exists():
            found.append((place.name, str(place), place.stat()))
    return found


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
        return now.digest[:12] if now is not None and _differs(described, now, paths, classes) else None
    if now is None or (now.files, now.bytes, now.digest) == (noted["files"], noted["bytes"], noted["digest"]):
        return noted["token"]
    return now.digest[:12]


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
