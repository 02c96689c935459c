"""Points from what people have: logs of torchtitan, nanotron and MLPerf, exports of W&B and MLflow, `runs.csv`.

Each reader finds one rank count's time in a file, or a table of them. These points are ``imported``: they never enter a
mean with measured ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.files import read_text
from study.core.foreign_csv import read_foreign_csv
from study.prediction.logs import ANSI, LEAST_STEPS, LOGS, Found
from study.prediction.points import REMEDY, THROUGHPUT, TIMES, Series, read_points, series_of
from study.prediction.trackers import MEASURED, history, mlflow_run, of_export, renamed
from study.records.tidy import read_runs

PREFIXED = re.compile(r"([0-9]{1,9}):(.+)", re.S)


def read_any(
    names: Iterable[str], work: str, ranks_per_node: int | None = None, unit: str | None = None
) -> list[Series]:
    """The series in files of any kind that is known; all logs of one kind are one series.

    names: paths, or ``RANKS:PATH`` of a log that does not name its ranks. Raises `StudyError`.
    """
    names = list(names)
    series: list[Series] = []
    logs: dict[tuple[str, str, str | None], list[dict[str, float]]] = {}
    for name in names:
        ranks, path = _parted(name)
        if path.suffix.lower() == ".csv":
            of_table = _of_table(path, ranks, work, ranks_per_node, unit)
            if not isinstance(of_table, Found):
                series += of_table
                continue
            kind, found = "history", of_table
        elif path.is_dir():
            kind, found = "MLflow", mlflow_run(path)
        else:
            kind, found = _of_log(path)
        ranks = ranks or found.ranks
        if ranks is None:
            raise StudyError(f"{path}: the {kind} log does not name its ranks; give RANKS:{path}, such as 8:{path}")
        if not 0 < found.value < np.inf:
            raise StudyError(f"{path}: gives {found.value:g} for {found.column}; above 0 is expected")
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
        try:
            found = read(text)
        except StudyError as error:
            raise StudyError(f"{path}: {error}") from None
        if found is not None:
            return kind, found
    known = ", ".join(LOGS)
    raise StudyError(f"{path}: is not a CSV file (.csv), and has no lines of {known}, {LEAST_STEPS} steps at least")


def _of_table(
    path: Path, ranks: int | None, work: str, ranks_per_node: int | None, unit: str | None
) -> list[Series] | Found:
    """A CSV file: with our columns, `runs.csv` of this project, an export of W&B or MLflow; or a history of one run.

    Of an export, rows of runs that did not finish, or that lack the ranks or the time, are left out. A history has no
    column with ranks (they are given before the file's name): its value is the median of the later half.
    """
    table = read_foreign_csv(path, REMEDY)
    if {"gpus", "record", "time_per_epoch_s", "status"} <= set(table.frame):
        return _of_runs(path, work)
    known = renamed(table.frame)
    measured = next((name for name in MEASURED if name in known), None)
    if ranks is not None:
        return history(path, table, known, measured)
    ours = {name.strip().lower() for name in table.frame}
    is_contract = "ranks" in ours and any(name in ours for name in (*TIMES, THROUGHPUT))
    if is_contract or "ranks" not in known or measured is None:
        return read_points(path, work, ranks_per_node, unit)  # whose message says what is missing
    return of_export(path, table, known, measured, work, ranks_per_node, unit)


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
