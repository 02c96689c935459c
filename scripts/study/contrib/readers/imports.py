"""Points from what people have: logs of torchtitan, nanotron and MLPerf, exports of W&B and MLflow, `runs.csv`.

Each reader finds one rank count's time in a file, or a table of them. These points are ``imported``: they never enter a
mean with measured ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from study.contrib.readers.logs import LEAST_STEPS, LOGS, Found, log_text
from study.contrib.readers.trackers import (
    MEASURED,
    history,
    of_export,
    renamed,
    with_ranks,
    without_placeholders,
)
from study.core.errors import StudyError
from study.core.foreign_csv import ForeignTable, read_foreign_csv
from study.core.wording import counted
from study.prediction import settings
from study.prediction.points import REMEDY, THROUGHPUT, TIMES, Series, plain, read_points, series_of
from study.records import own_keys
from study.records.tidy import read_runs

PREFIXED = re.compile(r"([0-9]{1,9}):(.+)", re.S)
TABLES = (".csv", ".tsv")
OF_A_NAME = ("benchmark", "dataset", "loader", "scaling", "batch_size")  # columns that always name a series of runs.csv


def read_any(
    names: Iterable[str], work: str, ranks_per_node: int | None = None, unit: str | None = None
) -> list[Series]:
    """The series in files of any kind that is known; all logs of one kind and one job are one series.

    names: paths, or ``RANKS:PATH`` of a log that does not name its ranks. Raises `StudyError`.
    """
    names = list(names)
    series: list[tuple[str, Series]] = []  # with the file, or the kind of logs
    logs: dict[tuple[str, str, str | None], list[tuple[int, Found]]] = {}
    told: dict[tuple[str, str, str | None], list[str]] = {}
    for name in names:
        ranks, path = _parted(name)
        if path.suffix.lower() in TABLES:
            of_table = _of_table(path, ranks, work, ranks_per_node, unit)
            if not isinstance(of_table, Found):
                series += [(name, each) for each in of_table]
                continue
            kind, found = "history", of_table
        else:
            kind, found = _of_log(path)
        others = found.ranks if ranks and found.ranks != ranks else None
        ranks = ranks or found.ranks
        if ranks is None:
            raise StudyError(f"{path}: the {kind} log does not name its ranks; give RANKS:{path}, such as 8:{path}")
        if not 0 < found.value < np.inf:
            raise StudyError(f"{path}: gives {found.value:g} for {found.column}; above 0 is expected")
        key = f"{kind} {found.job}".strip(), found.column, found.unit
        logs.setdefault(key, []).append((ranks, found))
        contrary = f"{path} names {counted(others, 'rank')}; the {ranks} before its name are used" if others else ""
        told.setdefault(key, []).extend((found.told, contrary))
    for key, runs in logs.items():
        kind, column, given = key
        notes = [note for note in dict.fromkeys(told[key]) if note]
        frame = pd.DataFrame([{"ranks": ranks, column: found.value} for ranks, found in runs])
        frame["series"] = kind
        for each in series_of(frame, kind, work, ranks_per_node, given or unit):
            series.append((given or column, replace(each, notes=[*each.notes, *notes])))
    return _told_apart(series)


def _told_apart(series: list[tuple[str, Series]]) -> list[Series]:
    """The series; those of one name have their file, or what was measured, behind it, else a number."""
    of_name = Counter(each.name for _, each in series)
    full = [f"{each.name} ({place})" if of_name[each.name] > 1 else each.name for place, each in series]
    seen: Counter[str] = Counter()
    found = []
    for name, (_, each) in zip(full, series, strict=True):
        seen[name] += 1
        found.append(replace(each, name=name if seen[name] == 1 else f"{name} {seen[name]}"))
    return found


def _parted(name: str) -> tuple[int | None, Path]:
    match = PREFIXED.fullmatch(name)
    if match and not Path(name).exists():
        if int(match[1]) < 1:
            raise StudyError(f"{name}: the ranks before the colon must be at least 1")
        return int(match[1]), Path(match[2])
    return None, Path(name)


def _of_log(path: Path) -> tuple[str, Found]:
    text = log_text(path)
    for kind, read in LOGS.items():
        try:
            found = read(text)
        except StudyError as error:
            raise StudyError(f"{path}: {error}") from None
        if found is not None:
            return kind, found
    known, tables = ", ".join(LOGS), " or ".join(TABLES)
    raise StudyError(f"{path}: is not a table ({tables}), and has no lines of {known}, {LEAST_STEPS} steps at least")


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
    table = without_placeholders(table)
    known = renamed(table.frame)
    measured = next((name for name in MEASURED if name in known), None)
    if ranks is not None:
        return history(path, table, known, measured)
    table, known = with_ranks(table, known)
    ours = {plain(name) for name in table.frame}
    is_contract = "ranks" in ours and any(name in ours for name in (*TIMES, THROUGHPUT))
    if is_contract:
        return read_points(path, work, ranks_per_node, unit)
    if "ranks" not in known or measured is None:
        raise StudyError(f"{path}: line {table.header}: {_lacking(table, known, measured)}; {REMEDY}")
    return of_export(path, table, known, measured, work, ranks_per_node, unit)


def _lacking(table: ForeignTable, known: dict[str, str], measured: str | None) -> str:
    """What a table of points lacks, by what names it would be known, and what the table has instead."""
    lacking = []
    if "ranks" not in known:
        lacking.append("there is no column 'ranks' (or GPUs, world_size, num_nodes and gpus_per_node)")
    if measured is None:
        lacking.append(
            "no column with times or a throughput is known: name it time_per_step_s, time_per_epoch_s, runtime_s or "
            "throughput (with --unit img/s, or img/s/GPU if it is that of one GPU)"
        )
    read = ", ".join(f"{known[name]!r} is read as {name}" for name in ("ranks", measured) if name in known)
    return f"{', and '.join(lacking)}{read and f'; {read}'}; the file has {', '.join(table.frame)}"


def _of_runs(path: Path, work: str) -> list[Series]:
    """`runs.csv`: the runs that a prediction uses (`study.prediction.settings.select`); they are measured.

    A series has the runs that are alike in all grid keys but ranks and repeat; those that differ are in its name, of a
    command without the keys that it does not have.
    """
    selection = settings.select(read_runs(path))
    runs = selection.used.reset_index(drop=True)
    if runs.empty:
        raise StudyError(f"{path}: has no successful run with a runtime_s that a prediction can use")
    keys = [name for name in (*settings.WORKLOAD, *settings.SERIES) if name in runs and name not in OF_A_NAME]
    differing = [name for name in keys if runs[name].nunique(dropna=False) > 1]
    words = {name: runs[name].astype(str) for name in OF_A_NAME if name in runs}
    words |= {name: f"{name}=" + runs[name].astype(str) for name in differing}
    lacking = own_keys.of_benchmarks(runs)
    names = [
        " ".join(word for name, word in row.items() if name not in lacking.get(row["benchmark"], ()))
        for row in pd.DataFrame(words).to_dict("records")
    ]
    table = pd.DataFrame(
        {
            "series": names,
            "ranks": runs["gpus"].astype(int),
            "nodes": runs["nodes"].astype(int),
            "runtime_s": runs["runtime_s"].astype(float),
        }
    )
    left = [f"{counted(number, 'run')} left out: {reason}" for reason, number in selection.left_out.items()]
    notes = [*left, *selection.problems]
    return [replace(each, notes=[*each.notes, *notes]) for each in series_of(table, path, work, origin="measured")]
