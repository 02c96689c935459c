"""How long a run would train by the papers' times per epoch on the same machine: known before anything has run."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from study.core import checked, configuration
from study.core.csv_files import FINITE, read_csv
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.experiment.parameters.registry import observed_by
from study.experiment.study import PlannedRun

KEYS = ["machine", "benchmark", "scaling"]


@functools.cache
def points() -> pd.DataFrame:
    """One row per published point: paper, machine, benchmark, scaling, batch_size, ranks, time_per_epoch_s, around_s.

    From ``config/papers/PAPER/times.yaml``. Raises `StudyError` for a file or column that does not exist.
    """
    frames = [
        _points(path.parent, entry)
        for path in sorted(CONFIG.glob("papers/*/times.yaml"))
        for entry in checked.load(path, "published_times")["times"]
    ]
    return pd.concat(frames, ignore_index=True)


def _points(folder: Path, entry: dict[str, Any]) -> pd.DataFrame:
    where = f"config/papers/{folder.name}/times.yaml: {entry['file']}"
    if not (folder / entry["file"]).is_file():
        raise StudyError(f"{where}: there is no such file beside it")
    time = entry.get("time_per_epoch_s") or entry["train_s"]
    numbers = dict.fromkeys((entry["ranks"], time, "batch_size"), FINITE)
    rows = read_csv(folder / entry["file"], others=numbers.get)
    missing = [column for column in (entry["ranks"], time, *entry.get("where", {})) if column not in rows]
    if missing:
        raise StudyError(f"{where}: there is no column '{missing[0]}'; the file has: {', '.join(rows)}")
    for column, value in entry.get("where", {}).items():
        rows = rows[rows[column] == value]
    rows = rows.dropna(subset=[entry["ranks"], time])
    ranks, epochs = rows[entry["ranks"]], entry.get("epochs", 1)
    of_a_rank = epochs / ranks if "train_s" in entry and entry["scaling"] == "strong" else epochs
    standard = configuration.load_named("benchmarks", entry["benchmark"])["batch_size"]
    return pd.DataFrame(
        {
            "paper": folder.name,
            **{key: entry[key] for key in KEYS},
            "batch_size": rows["batch_size"].fillna(standard) if "batch_size" in rows else standard,
            "ranks": ranks,
            "time_per_epoch_s": rows[time] / of_a_rank,
            "around_s": entry.get("around_s"),
        }
    )


def training_s(run: PlannedRun, machine: dict[str, Any]) -> float | None:
    """Seconds that the epochs of a run take by published times, without loading; None if no paper tells.

    The time per epoch is interpolated between published rank counts, linearly in the logarithm of the count, and kept
    beyond them; several values of one count are averaged. Of several batch sizes the nearest counts. machine: the
    machine's file; a machine without published times has those of its ``base``.
    """
    known = _known(run, machine)
    if known is None:
        return None
    return run.epochs_per_rank * float(np.interp(math.log(run.gpus), np.log(known.ranks), known.time_per_epoch_s))


def runtime_s(run: PlannedRun, machine: dict[str, Any]) -> float | None:
    """Seconds that a run takes by published times, with all that is around its epochs; None if no paper tells.

    Nothing is told of runs on more ranks than were published, and of runs that are observed otherwise than by cProfile.
    """
    train_s = training_s(run, machine)
    known = _known(run, machine) if train_s is not None else None
    if train_s is None or known is None or known.around_s is None or run.gpus > max(known.ranks):
        return None
    return None if set(observed_by(run)) - {"profile"} else train_s + known.around_s


def _known(run: PlannedRun, machine: dict[str, Any]) -> _Times | None:
    """The published times of a run's benchmark; None if no paper tells."""
    names = [machine["name"], machine.get("base")] if _has_the_paper_s_epochs(run) else []
    found = (_times(name, run["benchmark"], run["scaling"], run.batch_size_per_rank) for name in names)
    return next((each for each in found if each is not None), None)


def _has_the_paper_s_epochs(run: PlannedRun) -> bool:
    """Whether an epoch of the run is one of the benchmark as published: the same samples and features on each rank."""
    workload, shape = run.spec["workload"], run.dataset.shape or {}
    same = (run.samples_per_rank, shape.get("features")) == (workload["train_samples"], workload.get("features", 0))
    return same and run["emulated_ranks"] == 1


class _Times(NamedTuple):
    """Ascending rank counts, mean times per epoch, and the time (s) of a run besides its epochs, if it is known."""

    ranks: list[int]
    time_per_epoch_s: list[float]
    around_s: float | None


@functools.cache
def _times(machine: str | None, benchmark: str, scaling: str, batch_size: int) -> _Times | None:
    """The times of the nearest batch size; None if there are none."""
    known = points()
    known = known[(known[KEYS] == [machine, benchmark, scaling]).all(axis=1)]
    if known.empty:
        return None
    distance = np.log(known["batch_size"] / batch_size).abs()
    times = known[distance == distance.min()].groupby("ranks")["time_per_epoch_s"].mean()
    around_s = known["around_s"].max()
    return _Times(list(times.index), list(times), None if pd.isna(around_s) else float(around_s))
