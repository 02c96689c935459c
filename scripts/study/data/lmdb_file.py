"""Open an LMDB database for reading, unless it is cut off.

LMDB maps its file and has no checksums: reading a page behind the end of a truncated file would kill the process.
"""

from pathlib import Path
from typing import Any

from study.core.files import AnyPath


def open_whole(path: AnyPath, **options: Any) -> Any:
    """Open an LMDB database read-only and without a lock file; raises `lmdb.Error` if the file is cut off."""
    import lmdb

    environment = lmdb.open(str(path), subdir=False, lock=False, readonly=True, **options)
    expected = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if (size := Path(path).stat().st_size) < expected:
        environment.close()
        raise lmdb.CorruptedError(f"it is cut off: it has {size} bytes, its first page promises {expected}")
    return environment
