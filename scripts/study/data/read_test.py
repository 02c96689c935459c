"""How fast a folder's storage is read: one file, from the page cache and, where it can be emptied, from the storage."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from study.core import commands
from study.core.files import AnyPath
from study.data import page_cache

BLOCK = 1 << 20
FIO_S = 3600  # for one read
FIO, PLAIN = "fio", "plain sequential read"


def measure(folder: AnyPath, size_mb: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Read a file of ``size_mb`` (10^6 bytes), which is written first and removed afterwards.

    Yields one row per read: repeat, tool (`FIO` where it is installed, else `PLAIN`), page_cache (cold or warm),
    gb_per_s (10^9 bytes per second; None if the read would not be what it is called) and reason. The cache of a disk,
    of a server or of a virtual machine's host is not emptied: a cold read may still come from there.
    """
    with tempfile.NamedTemporaryFile(dir=folder, prefix="read_test_") as file:
        _fill(file, size_mb * 10**6)
        for repeat in range(1, repeats + 1):
            reason = page_cache.drop(file.name)
            yield _row(repeat, "cold", None if reason else _rate(file.name), reason)
            page_cache.warm(file.name)
            yield _row(repeat, "warm", _rate(file.name), None)


def _row(repeat: int, cache: str, rate: float | None, reason: str | None) -> dict[str, Any]:
    return {"repeat": repeat, "tool": tool(), "page_cache": cache, "gb_per_s": rate, "reason": reason}


def tool() -> str:
    """What reads."""
    return FIO if shutil.which("fio") else PLAIN


def _fill(file: Any, size: int) -> None:
    """Random bytes, which no file system can compress or leave out."""
    block = os.urandom(BLOCK)
    for start in range(0, size, BLOCK):
        file.write(block[: size - start])
    file.flush()
    os.fsync(file.fileno())


def _rate(path: str) -> float:
    return _fio(path) if tool() == FIO else _plain(path)


def _plain(path: str) -> float:
    buffer, size = bytearray(BLOCK), Path(path).stat().st_size
    begin = time.perf_counter()
    with open(path, "rb", buffering=0) as handle:
        while handle.readinto(buffer):
            pass
    return size / 1e9 / (time.perf_counter() - begin)


def _fio(path: str) -> float:
    """invalidate=0: fio would otherwise empty the page cache before it reads."""
    line = ["fio", "--name=read", f"--filename={path}", "--rw=read", "--bs=1M", "--ioengine=psync", "--invalidate=0",
            "--readonly", "--output-format=json"]  # fmt: skip
    found = commands.run(line, FIO_S)
    found.check_returncode()
    return float(json.loads(found.stdout)["jobs"][0]["read"]["bw_bytes"]) / 1e9
