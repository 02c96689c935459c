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


def measure_reads(folder: AnyPath, size_mb: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the speed of each read of a test file of ``size_mb`` (10^6 bytes), cold and warm.

    Yields one row per read: repeat, tool (`FIO` where it is installed, else `PLAIN`), page_cache (cold or warm),
    gb_per_s (10^9 bytes per second; None if the read would not be what it is called) and reason. The cache of a disk,
    of a server or of a virtual machine's host is not emptied: a cold read may still come from there.
    """
    with tempfile.NamedTemporaryFile(dir=folder, prefix="read_test_") as file:
        _fill_file(file, size_mb * 10**6)
        for repeat in range(1, repeats + 1):
            reason = page_cache.drop_file(file.name)
            yield _make_row(repeat, "cold", None if reason else _measure_rate(file.name), reason)
            page_cache.warm_file(file.name)
            yield _make_row(repeat, "warm", _measure_rate(file.name), None)


def _make_row(repeat: int, cache: str, rate: float | None, reason: str | None) -> dict[str, Any]:
    """One row of the result."""
    return {"repeat": repeat, "tool": find_tool(), "page_cache": cache, "gb_per_s": rate, "reason": reason}


def find_tool() -> str:
    """Name of the tool that reads: `FIO` where installed, else `PLAIN`."""
    return FIO if shutil.which("fio") else PLAIN


def _fill_file(file: Any, size: int) -> None:
    """Write random bytes, which no file system can compress or leave out."""
    block = os.urandom(BLOCK)
    for start in range(0, size, BLOCK):
        file.write(block[: size - start])
    file.flush()
    os.fsync(file.fileno())


def _measure_rate(path: str) -> float:
    """Speed of one read by the tool in use, GB/s."""
    return _measure_fio_rate(path) if find_tool() == FIO else _measure_plain_rate(path)


def _measure_plain_rate(path: str) -> float:
    """Speed of one plain sequential read, GB/s."""
    buffer, size = bytearray(BLOCK), Path(path).stat().st_size
    begin = time.perf_counter()
    with open(path, "rb", buffering=0) as handle:
        while handle.readinto(buffer):
            pass
    return size / 1e9 / (time.perf_counter() - begin)


def _measure_fio_rate(path: str) -> float:
    """Speed of one read by fio, GB/s; invalidate=0, or fio would empty the page cache before."""
    line = ["fio", "--name=read", f"--filename={path}", "--rw=read", "--bs=1M", "--ioengine=psync", "--invalidate=0",
            "--readonly", "--output-format=json"]  # fmt: skip
    completed = commands.run_program(line, FIO_S)
    completed.check_returncode()
    return float(json.loads(completed.stdout)["jobs"][0]["read"]["bw_bytes"]) / 1e9
