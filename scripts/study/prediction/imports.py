"""Points from what people have: logs of torchtitan, nanotron and MLPerf, exports of W&B and MLflow, and `runs.csv`.

Each reader finds one rank count's time in a file, or a table of them. These points are ``imported``: they never enter a
mean with measured ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from study.core.csv_files import TEXT, lines_of_rows, read_csv
from study.core.errors import StudyError
from study.core.files import read_text
from study.core.registry import Registry
from study.prediction.points import COUNTS, REMEDY, THROUGHPUT, TIMES, Series, read_points, series_of
from study.records.tidy import read_runs

# What exports call the columns, without prefixes such as config., summary. and metrics.
ALIASES = {
    "ranks": ("world_size", "num_gpus", "n_gpus", "ngpus", "gpus", "gpu_count", "num_processes", "devices"),
    "nodes": ("num_nodes", "nnodes", "n_nodes"),
    "time_per_step_s": ("step_time", "step_time_s", "time_per_step", "seconds_per_step"),
    "time_per_epoch_s": ("epoch_time", "epoch_time_s", "time_per_epoch"),
    "runtime_s": ("_runtime", "runtime", "train_runtime", "duration"),
    THROUGHPUT: ("samples_per_second", "train_samples_per_second", "images_per_second", "tokens_per_second",
                 "samples_per_s", "images_per_s", "tokens_per_s"),
}  # fmt: skip
PREFIX = re.compile(r"^(config|summary|params|metrics|tags|train|perf|system)[./]")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
LEAST_STEPS = 2
PREFIXED = re.compile(r"([0-9]{1,9}):(.+)", re.S)


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


@_log("torchtitan")
def torchtitan(text: str) -> Found | None:
    """Lines such as ``step: 20  loss: 9.1  memory: ...  tps: 3,200  tflops: ...``: tokens/s of one rank."""
    rates = re.findall(r"\bstep:\s*\d+\b[^\n]*?\btps:\s*([0-9][0-9,.]*)", text)
    if len(rates) < LEAST_STEPS:
        return None
    mesh = re.search(r"device mesh with[^\n]*?\[([0-9]+(?:,\s*[0-9]+)*)\]\s*(?:\n|$)", text)
    ranks = int(np.prod([int(each) for each in mesh[1].split(",")])) if mesh else None
    return Found(THROUGHPUT, _median(rates), ranks, "tokens/s/GPU")


@_log("nanotron")
def nanotron(text: str) -> Found | None:
    """Lines such as ``iteration: 5 / 100 | ... | elapsed_time_per_iteration_ms: 812 | tokens_per_sec: 80.7K | ...``."""
    times = re.findall(r"\biteration:[^\n]*?\belapsed_time_per_iteration_ms:\s*([0-9][0-9.,]*[KMB]?)", text)
    if len(times) < LEAST_STEPS:
        return None
    whole = re.findall(r"\btokens_per_sec:\s*([0-9][0-9.,]*[KMB]?)", text)
    each = re.findall(r"\btokens_per_sec_per_gpu:\s*([0-9][0-9.,]*[KMB]?)", text)
    ranks = max(1, round(_median(whole) / _median(each))) if whole and each else None
    return Found("time_per_step_s", _median(times) / 1e3, ranks)


@_log("MLPerf")
def mlperf(text: str) -> Found | None:
    """Lines ``:::MLLOG {...}``: the time from run_start to run_stop."""
    found: dict[str, float] = {}
    for line in re.findall(r":::MLLOG\s+(\{[^\n]*\})", text):
        try:
            entry = json.loads(line)
            if entry.get("key") in ("run_start", "run_stop"):
                found[entry["key"]] = float(entry["time_ms"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            continue
    if len(found) < 2:
        return None
    return Found("runtime_s", (found["run_stop"] - found["run_start"]) / 1e3, None)


def read_any(
    names: Iterable[str], work: str, ranks_per_node: int | None = None, unit: str | None = None
) -> list[Series]:
    """The series in files of any kind that is known; all logs of one kind are one series.

    names: paths, or ``RANKS:PATH`` of a log that does not name its ranks. Raises `StudyError`.
    """
    series: list[Series] = []
    logs: dict[tuple[str, str, str | None], list[dict[str, float]]] = {}
    for name in names:
        ranks, path = _parted(name)
        if path.suffix.lower() == ".csv":
            if ranks:
                raise StudyError(f"{name}: a CSV file has a column ranks; leave {ranks}: out")
            series += _of_table(path, work, ranks_per_node, unit)
            continue
        kind, found = _of_log(path)
        ranks = ranks or found.ranks
        if ranks is None:
            raise StudyError(f"{path}: the {kind} log does not name its ranks; give RANKS:{path}, such as 8:{path}")
        row = {"ranks": ranks, found.column: found.value}
        logs.setdefault((kind, found.column, found.unit), []).append(row)
    for (kind, _, given), rows in logs.items():
        series += series_of(pd.DataFrame(rows), kind, work, ranks_per_node, given or unit)
    return series


def _parted(name: str) -> tuple[int | None, Path]:
    match = PREFIXED.fullmatch(name)
    if match and not Path(name).exists():
        if int(match[1]) < 1:
            raise StudyError(f"{name}: the ranks before the colon must be at least 1")
        return int(match[1]), Path(match[2])
    return None, Path(name)


def _of_log(path: Path) -> tuple[str, Found]:
    text = ANSI.sub("", read_text(path))
    for kind, read in LOGS.items():
        if (found := read(text)) is not None:
            if not 0 < found.value < np.inf:
                raise StudyError(
                    f"{path}: the {kind} log gives {found.value:g} for {found.column}; above 0 is expected"
                )
            return kind, found
    known = ", ".join(LOGS)
    raise StudyError(f"{path}: is not a CSV file (.csv), and has no lines of {known}, {LEAST_STEPS} steps at least")


def _of_table(path: Path, work: str, ranks_per_node: int | None, unit: str | None) -> list[Series]:
    """A CSV file: with our columns, `runs.csv` of this project, or an export of W&B or MLflow."""
    frame = read_csv(path, others=lambda _: TEXT, remedy=REMEDY)
    if {"gpus", "record", "time_per_epoch_s", "status"} <= set(frame):
        return _of_runs(path, work)
    if "ranks" in frame and any(name in frame for name in (*TIMES, THROUGHPUT)):
        return read_points(path, work, ranks_per_node, unit)
    known = dict(_renamed(frame))
    if "ranks" not in known or not any(name in known for name in (*TIMES, THROUGHPUT)):
        return read_points(path, work, ranks_per_node, unit)  # whose message says what is missing
    chosen = next(name for name in (*TIMES, THROUGHPUT) if name in known)
    columns = [name for name in ("ranks", "nodes", chosen) if name in known]
    table = pd.DataFrame({name: _numbers(frame[known[name]], name, known[name], path) for name in columns})
    if unit is None and chosen == THROUGHPUT:
        unit = known[chosen]
    found = series_of(table, path, work, ranks_per_node, unit, lines=lines_of_rows(path))
    for each in found:
        each.notes.append(f"read {', '.join(f'{known[name]} as {name}' for name in columns)}")
    return found


def _renamed(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """(our name, the file's name) of each column that is known by another name; the first one of each counts."""
    plain: dict[str, str] = {}
    for name in frame:
        plain.setdefault(PREFIX.sub("", str(name).strip().lower()), str(name))
    for ours, others in ALIASES.items():
        for other in (ours, *others):
            if other in plain:
                yield ours, plain[other]
                break


def _numbers(column: pd.Series, ours: str, name: str, path: Path) -> pd.Series:
    values = pd.to_numeric(column, errors="coerce")
    wrong = values.isna() | (np.isinf(values)) | ((ours in COUNTS) & (values % 1 != 0))
    if wrong.any():
        place = int(wrong.to_numpy().argmax())
        raise StudyError(
            f"{path}: line {lines_of_rows(path)[place]}, column {name!r}: {str(column.iloc[place])[:40]!r} is not a "
            f"{'whole ' if ours in COUNTS else ''}number; {REMEDY}"
        )
    return values


def _of_runs(path: Path, work: str) -> list[Series]:
    """`runs.csv`: finished runs of each benchmark, dataset, loader, scaling and batch size; they are measured."""
    runs = read_runs(path)
    runs = runs[(runs["status"] == "ok") & runs["runtime_s"].notna()]
    if runs.empty:
        raise StudyError(f"{path}: has no successful run with a runtime_s")
    labels = [name for name in ("benchmark", "dataset", "loader", "scaling", "batch_size") if name in runs]
    table = pd.DataFrame(
        {
            "series": runs[labels].astype(str).agg(" ".join, axis=1),
            "ranks": runs["gpus"].astype(int),
            "nodes": runs["nodes"].astype(int),
            "runtime_s": runs["runtime_s"].astype(float),
        }
    )
    return series_of(table.reset_index(drop=True), path, work, origin="measured")
