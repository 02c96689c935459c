"""Times in logs of training programs: torchtitan, nanotron and MLPerf. Each reader finds one run's time in a text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from study.core.errors import StudyError
from study.core.registry import Registry
from study.prediction.points import THROUGHPUT

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
LEAST_STEPS = 2
LARGEST_RATIO = 48  # of two numbers with three digits, whose nearest whole number is sure


@dataclass(frozen=True)
class Found:
    """What a log says. column: one of `TIMES` or the throughput; ranks: None if the log does not name them."""

    column: str
    value: float
    ranks: int | None
    unit: str | None = None


Reader = Callable[[str], Found | None]
LOGS: Registry[Reader] = Registry("log format")


def _log(name: str) -> Callable[[Reader], Reader]:
    def register(read: Reader) -> Reader:
        LOGS.add(name, read)
        return read

    return register


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

    Lines of validation are left out. Each rank may print a step.
    """
    rates = re.findall(r"(?<!validate )\bstep:\s*\d+\b[^\n]*?\btps:\s*([0-9][0-9,.]*)", text)
    if len(rates) < LEAST_STEPS:
        return None
    meshes = re.findall(r"device mesh with[^\n]*?\[([0-9]+(?:,\s*[0-9]+)*)\]\s*(?:\n|$)", text)
    ranks = {int(np.prod([int(each) for each in mesh.split(",")])) for mesh in meshes}
    return Found(THROUGHPUT, _median(rates), _one_of(ranks, "device mesh"), "tokens/s/GPU")


@_log("nanotron")
def nanotron(text: str) -> Found | None:
    """Lines such as ``iteration: 5 / 100 | ... | elapsed_time_per_iteration_ms: 812 | tokens_per_sec: 80.7K | ...``.

    The ranks are tokens_per_sec / tokens_per_sec_per_gpu. Both have three digits, so large counts are not known.
    """
    times = re.findall(r"\biteration:[^\n]*?\belapsed_time_per_iteration_ms:\s*([0-9][0-9.,]*[KMB]?)", text)
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

    Raises `StudyError` if all runs were aborted.
    """
    started: float | None = None
    times: list[float] = []
    aborted = 0
    for line in re.findall(r":::MLLOG\s+(\{[^\n]*\})", text):
        try:
            entry = json.loads(line)
            key, at = entry.get("key"), float(entry.get("time_ms", "nan"))
            status = str((entry.get("metadata") or {}).get("status", "success")).lower()
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            continue
        if key == "run_start":
            started = at
        elif key == "run_stop" and started is not None:
            aborted += status != "success"
            times += [(at - started) / 1e3] if status == "success" else []
            started = None
    if not times and aborted:
        raise StudyError("its run was aborted, so its time is not that of the work")
    return Found("runtime_s", float(np.mean(times)), None) if times else None
