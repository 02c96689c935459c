"""Times in logs of training programs: torchtitan and MLPerf. Each reader finds one run's time in a text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study.contrib.readers.series_tables import THROUGHPUT
from study.core.errors import StudyError
from study.core.quantities import parse_number, remove_colours
from study.core.registry import Registry
from study.core.wording import format_count

LEAST_STEPS = 2
OVERLAPPING_DIMENSIONS = ("ep", "etp")  # dimensions of torchtitan's mesh that divide ranks of the others once more
MLLOG = ":::MLLOG"
LATEST_MS = 1e18  # of a clock
MLPERF_BENCHMARK = "submission_benchmark"  # a key of MLPerf's log


@dataclass(frozen=True)
class RunValue:
    """A run's time or throughput, as read from a file.

    Args:
        column: one of `study.contrib.readers.series_tables.TIMES`, or the throughput.
        value: in s, or in ``unit``.
        ranks: None if the log does not name them.
        unit: of a throughput.
        note: what was read, in a sentence.
        job: its name, if the log has one: runs of other names are of other series.
    """

    column: str
    value: float
    ranks: int | None
    unit: str | None = None
    note: str = ""
    job: str = ""


Reader = Callable[[str], RunValue | None]
LOGS: Registry[Reader] = Registry("log format")


def _register_log(name: str) -> Callable[[Reader], Reader]:
    """Register the decorated function as the reader of logs of this name."""

    def register(read: Reader) -> Reader:
        LOGS.add(name, read)
        return read

    return register


def read_log_text(path: Path) -> str:
    """Read the text of a log, without colours; bytes that are no UTF-8 are replaced. Raises `StudyError`."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return remove_colours(raw.decode(encoding, errors="replace"))


def _compute_median(values: Iterable[str]) -> float:
    """Compute the median of the later half of the steps, at least one: the first ones warm up."""
    numbers = [parse_number(each.rstrip(",.")) for each in values]
    return float(np.nanmedian(numbers[len(numbers) // 2 :]))


@_register_log("torchtitan")
def read_torchtitan(text: str) -> RunValue | None:
    """Read tokens/s of one rank in lines such as ``step: 20  loss: 9.1  memory: ...  tps: 3,200  tflops: ...``.

    Lines of validation are left out. Each rank may print a step. The ranks are the product of the mesh, which is told
    as ``with ['dp_shard', 'tp'], [4, 2]`` or, later, ``with parallelism: pp=1, ..., dp_shard=4, tp=2, ep=1``.
    """
    rates = re.findall(r"(?<!validate )\bstep:\s*\d+\b[^\n]*?\btps:\s*([0-9][0-9,.]*)", text)
    if len(rates) < LEAST_STEPS:
        return None
    listed = re.findall(r"device mesh with \[[^\]\n]*\],\s*\[([0-9]+(?:,\s*[0-9]+)*)\]", text)
    named = re.findall(r"device mesh with parallelism:\s*([a-z_]+=[0-9]+(?:,\s*[a-z_]+=[0-9]+)*)", text)
    meshes = [[int(each) for each in mesh.split(",")] for mesh in listed]
    for mesh in named:
        degrees = dict(re.findall(r"([a-z_]+)=([0-9]+)", mesh))
        meshes.append([int(degree) for name, degree in degrees.items() if name not in OVERLAPPING_DIMENSIONS])
    ranks = sorted({math.prod(mesh) for mesh in meshes} - {0})
    if len(ranks) > 1:
        counts = " and ".join(map(str, ranks))
        raise StudyError(f"has runs on {counts} ranks (device mesh); one run per file is expected")
    return RunValue(THROUGHPUT, _compute_median(rates), ranks[0] if ranks else None, "tokens/s/GPU")


@_register_log("MLPerf")
def read_mlperf(text: str) -> RunValue | None:
    """Read the mean time from run_start to run_stop in lines ``:::MLLOG {...}``, of runs that were not aborted.

    Runs of other benchmarks (``submission_benchmark``) are of other jobs. Raises `StudyError` if all runs were aborted,
    or if a file has runs of several benchmarks.
    """
    start_ms: float | None = None
    times: list[float] = []
    aborted = 0
    benchmarks: set[str] = set()
    for entry in _parse_mllog(text):
        key, time_ms = entry.get("key"), entry.get("time_ms")
        if key == MLPERF_BENCHMARK:
            benchmarks.add(str(entry.get("value")))
        if not isinstance(time_ms, int | float) or not abs(time_ms) < LATEST_MS:
            continue
        if key == "run_start":
            start_ms = time_ms
        elif key == "run_stop" and start_ms is not None:
            has_succeeded = _get_status(entry) == "success"
            aborted += not has_succeeded
            times += [(time_ms - start_ms) / 1e3] if has_succeeded else []
            start_ms = None
    if not times and aborted:
        raise StudyError("its run was aborted, so its time is not that of the work")
    if not times:
        return None
    if len(benchmarks) > 1:
        raise StudyError(f"has runs of {' and '.join(sorted(benchmarks))}; one benchmark per file is expected")
    left_out = f"; {format_count(aborted, 'aborted run')} left out" if aborted else ""
    note = f"a time is the mean of the runs of a file{left_out}. They end at a quality, so their epochs may differ"
    return RunValue("runtime_s", float(np.mean(times)), None, note=note, job="".join(benchmarks))


def _parse_mllog(text: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of MLPerf's logging; lines of several ranks may have run into each other."""
    decoder = json.JSONDecoder()
    for part in text.split(MLLOG)[1:]:
        try:
            entry, _ = decoder.raw_decode(part.lstrip())
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry


def _get_status(entry: dict[str, Any]) -> str:
    """Get a run's status from the metadata or value of its last entry; success where there is none."""
    for place in (entry.get("metadata"), entry.get("value"), entry):
        if isinstance(place, dict) and "status" in place:
            return str(place["status"]).lower()
    return "success"
