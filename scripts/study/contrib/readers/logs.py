"""Times in logs of training programs: torchtitan, nanotron and MLPerf. Each reader finds one run's time in a text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.core.registry import Registry
from study.core.wording import counted
from study.prediction.points import THROUGHPUT

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
LEAST_STEPS = 2
LARGEST_RATIO = 48  # of two numbers with three digits, whose nearest whole number is sure
OF_THE_SAME_RANKS = ("ep", "etp")  # dimensions of torchtitan's mesh that divide ranks of the others once more
MLLOG = ":::MLLOG"
LATEST_MS = 1e18  # of a clock
MLPERF_BENCHMARK = "submission_benchmark"  # a key of MLPerf's log


@dataclass(frozen=True)
class Found:
    """What a log says of one run.

    Args:
        column: one of `study.prediction.points.TIMES`, or the throughput.
        value: in s, or in ``unit``.
        ranks: None if the log does not name them.
        unit: of a throughput.
        told: what was read, in a sentence.
        job: its name, if the log has one: runs of other names are of other series.
    """

    column: str
    value: float
    ranks: int | None
    unit: str | None = None
    told: str = ""
    job: str = ""


Reader = Callable[[str], Found | None]
LOGS: Registry[Reader] = Registry("log format")


def _log(name: str) -> Callable[[Reader], Reader]:
    def register(read: Reader) -> Reader:
        LOGS.add(name, read)
        return read

    return register


def log_text(path: Path) -> str:
    """The text of a log, without colours; bytes that are no UTF-8 are replaced. Raises `StudyError`."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}") from None
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return ANSI.sub("", raw.decode(encoding, errors="replace"))


def number(text: str) -> float:
    """A number as logs print it: ``1,234``, ``2.6K``; NaN for others."""
    match = re.fullmatch(r"([0-9][0-9,]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)([KMBGT]?)", text.strip())
    return float(match[1].replace(",", "")) * SUFFIXES[match[2]] if match else float("nan")


def _median(values: Iterable[str]) -> float:
    """Median of the steps after the first half of them, at least one: the first ones warm up."""
    numbers = [number(each) for each in values]
    return float(np.nanmedian(numbers[len(numbers) // 2 :]))


def _one_of(values: set[int], what: str) -> int | None:
    if len(values) > 1:
        told = " and ".join(str(each) for each in sorted(values))
        raise StudyError(f"has runs on {told} ranks ({what}); one run per file is expected")
    return next(iter(values), None)


@_log("torchtitan")
def torchtitan(text: str) -> Found | None:
    """Lines such as ``step: 20  loss: 9.1  memory: ...  tps: 3,200  tflops: ...``: tokens/s of one rank.

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
        meshes.append([int(degree) for name, degree in degrees.items() if name not in OF_THE_SAME_RANKS])
    ranks = {math.prod(mesh) for mesh in meshes} - {0}
    return Found(THROUGHPUT, _median(rates), _one_of(ranks, "device mesh"), "tokens/s/GPU")


@_log("nanotron")
def nanotron(text: str) -> Found | None:
    """Lines such as ``iteration: 5 / 100 | ... | elapsed_time_per_iteration_ms: 812 | tokens_per_sec: 80.7K | ...``.

    Later versions write ``time_per_iteration_ms``.
    The ranks are tokens_per_sec / tokens_per_sec_per_gpu. Both have three digits, so large counts are not known.
    """
    times = re.findall(r"\biteration:[^\n]*?\b(?:elapsed_)?time_per_iteration_ms:\s*([0-9][0-9.,]*[KMB]?)", text)
    if len(times) < LEAST_STEPS:
        return None
    rates = r"\btokens_per_sec:\s*([0-9][0-9.,]*[KMBGT]?)[^\n]*?\btokens_per_sec_per_gpu:\s*([0-9][0-9.,]*[KMBGT]?)"
    pairs = [(number(whole), number(each)) for whole, each in re.findall(rates, text)]
    ratios = [whole / each for whole, each in pairs if each > 0]
    counts = {max(1, round(ratio)) for ratio in ratios if ratio <= LARGEST_RATIO}
    ranks = _one_of(counts, "tokens_per_sec of all and of a GPU") if len(counts) and len(ratios) == len(pairs) else None
    return Found("time_per_step_s", _median(times) / 1e3, ranks)


@_log("MLPerf")
def mlperf(text: str) -> Found | None:
    """Lines ``:::MLLOG {...}``: the time from run_start to run_stop, the mean of all runs that were not aborted.

    Runs of other benchmarks (``submission_benchmark``) are of other jobs. Raises `StudyError` if all runs were aborted,
    or if a file has runs of several benchmarks.
    """
    started: float | None = None
    times: list[float] = []
    aborted = 0
    benchmarks: set[str] = set()
    for entry in _mllog_entries(text):
        key, at = entry.get("key"), entry.get("time_ms")
        if key == MLPERF_BENCHMARK:
            benchmarks.add(str(entry.get("value")))
        if not isinstance(at, int | float) or not abs(at) < LATEST_MS:
            continue
        if key == "run_start":
            started = at
        elif key == "run_stop" and started is not None:
            has_succeeded = _status(entry) == "success"
            aborted += not has_succeeded
            times += [(at - started) / 1e3] if has_succeeded else []
            started = None
    if not times and aborted:
        raise StudyError("its run was aborted, so its time is not that of the work")
    if not times:
        return None
    if len(benchmarks) > 1:
        raise StudyError(f"has runs of {' and '.join(sorted(benchmarks))}; one benchmark per file is expected")
    left = f"; {counted(aborted, 'aborted run')} left out" if aborted else ""
    told = f"a time is the mean of the runs of a file{left}. They end at a quality, so their epochs may differ"
    return Found("runtime_s", float(np.mean(times)), None, told=told, job="".join(benchmarks))


def _mllog_entries(text: str) -> Iterator[dict[str, Any]]:
    """The entries of MLPerf's logging; lines of several ranks may have run into each other."""
    decoder = json.JSONDecoder()
    for part in text.split(MLLOG)[1:]:
        try:
            entry, _ = decoder.raw_decode(part.lstrip())
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry


def _status(entry: dict[str, Any]) -> str:
    """How a run ended, in the metadata or in the value of its last entry; success where it says nothing."""
    for place in (entry.get("metadata"), entry.get("value"), entry):
        if isinstance(place, dict) and "status" in place:
            return str(place["status"]).lower()
    return "success"
