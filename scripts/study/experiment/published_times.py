"""Estimates of a run's time from the papers' times per epoch on the same machine, before anything has run."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from study.core import configuration, validation
from study.core.csv_files import FINITE, read_csv
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.experiment.parameters.registry import list_observers
from study.experiment.study import PlannedRun

KEYS = ["machine", "benchmark", "scaling"]


@functools.cache
def load_points() -> pd.DataFrame:
    """Load the published points: paper, machine, benchmark, scaling, batch_size, ranks, time_per_epoch_s, around_s.

    From ``config/papers/PAPER/times.yaml``. Raises `StudyError` for a file or column that does not exist.
    """
    frames = [
        _read_points(path.parent, entry)
        for path in sorted(CONFIG.glob("papers/*/times.yaml"))
        for entry in validation.load_valid_yaml(path, "published_times")["times"]
    ]
    return pd.concat(frames, ignore_index=True)


def _read_points(folder: Path, entry: dict[str, Any]) -> pd.DataFrame:
    """The points of one entry of a paper's ``times.yaml``, as `load_points` has them."""
    where = f"config/papers/{folder.name}/times.yaml: {entry['file']}"
    if not (folder / entry["file"]).is_file():
        raise StudyError(f"{where}: there is no such file beside it")
    time_column = entry.get("time_per_epoch_s") or entry["train_s"]
    numbers = dict.fromkeys((entry["ranks"], time_column, "batch_size"), FINITE)
    rows = read_csv(folder / entry["file"], others=numbers.get)
    missing = [column for column in (entry["ranks"], time_column, *entry.get("where", {})) if column not in rows]
    if missing:
        raise StudyError(f"{where}: there is no column '{missing[0]}'; the file has: {', '.join(rows)}")
    for column, value in entry.get("where", {}).items():
        rows = rows[rows[column] == value]
    rows = rows.dropna(subset=[entry["ranks"], time_column])
    ranks, epochs = rows[entry["ranks"]], entry.get("epochs", 1)
    epochs_per_rank = epochs / ranks if "train_s" in entry and entry["scaling"] == "strong" else epochs
    usual_batch_size = configuration.load_named("benchmarks", entry["benchmark"])["batch_size"]
    return pd.DataFrame(
        {
            "paper": folder.name,
            **{key: entry[key] for key in KEYS},
            "batch_size": rows["batch_size"].fillna(usual_batch_size) if "batch_size" in rows else usual_batch_size,
            "ranks": ranks,
            "time_per_epoch_s": rows[time_column] / epochs_per_rank,
            "around_s": entry.get("around_s"),
        }
    )


def estimate_training_s(run: PlannedRun, machine: dict[str, Any]) -> float | None:
    """Seconds that a run's epochs take by published times, without loading; None without such times.

    The time per epoch is interpolated between published rank counts, linearly in the logarithm of the count, and kept
    beyond them; several values of one count are averaged. Of several batch sizes the nearest counts. machine: the
    machine's file; a machine without published times has those of its ``base``.
    """
    times = _find_times(run, machine)
    if times is None:
        return None
    return run.epochs_per_rank * float(np.interp(math.log(run.gpus), np.log(times.ranks), times.time_per_epoch_s))


def estimate_runtime_s(run: PlannedRun, machine: dict[str, Any]) -> float | None:
    """Seconds that a whole run takes by published times, with what is around its epochs; None without such times.

    None also for more ranks than were published, and for runs that are observed otherwise than by cProfile.
    """
    train_s = estimate_training_s(run, machine)
    times = _find_times(run, machine) if train_s is not None else None
    if train_s is None or times is None or times.around_s is None or run.gpus > max(times.ranks):
        return None
    return None if set(list_observers(run)) - {"profile"} else train_s + times.around_s


def _find_times(run: PlannedRun, machine: dict[str, Any]) -> _Times | None:
    """The published times that fit a run on a machine, or on its ``base``; None without any."""
    names = [machine["name"], machine.get("base")] if _has_published_epochs(run) else []
    candidates = (_select_times(name, run["benchmark"], run["scaling"], run.batch_size_per_rank) for name in names)
    return next((times for times in candidates if times is not None), None)


def _has_published_epochs(run: PlannedRun) -> bool:
    """Whether an epoch of the run has the published benchmark's samples and features on each rank."""
    workload, shape = run.spec["workload"], run.dataset.shape or {}
    same = (run.samples_per_rank, shape.get("features")) == (workload["train_samples"], workload.get("features", 0))
    return same and run["emulated_ranks"] == 1


class _Times(NamedTuple):
    """Ascending rank counts, mean times per epoch, and the time (s) of a run besides its epochs, if it is known."""

    ranks: list[int]
    time_per_epoch_s: list[float]
    around_s: float | None


@functools.cache
def _select_times(machine: str | None, benchmark: str, scaling: str, batch_size: int) -> _Times | None:
    """The published times of the nearest batch size; None if there are none."""
    times = load_points()
    times = times[(times[KEYS] == [machine, benchmark, scaling]).all(axis=1)]
    if times.empty:
        return None
    distance = np.log(times["batch_size"] / batch_size).abs()
    mean_times = times[distance == distance.min()].groupby("ranks")["time_per_epoch_s"].mean()
    around_s = times["around_s"].max()
    return _Times(list(mean_times.index), list(mean_times), None if pd.isna(around_s) else float(around_s))
