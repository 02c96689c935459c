"""When a set of records changed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def stamp(paths: Iterable[str | Path]) -> str:
    """12 hex digits that change when one of the files appears, disappears or is written again."""
    total = hashlib.sha256()
    for path in map(Path, paths):
        if path.exists():
            total.update(f"{path}\0{path.stat().st_mtime_ns}\0{path.stat().st_size}\0".encode())
    return total.hexdigest()[:12]
