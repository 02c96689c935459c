"""Series of points in others' files: logs of torchtitan and MLPerf, exports of W&B and MLflow, `runs.csv`.

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

from study.contrib.readers.logs import LEAST_STEPS, LOGS, RunValue, read_log_text
from study.contrib.readers.own_tables import REMEDY, normalize_name, read_points
from study.contrib.readers.series_tables import THROUGHPUT, TIMES, build_series
from study.contrib.readers.trackers import (
    MEASURED,
    add_ranks,
    clear_placeholders,
    match_columns,
    read_export,
    read_history,
)
from study.core.errors import StudyError
from study.core.foreign_csv import ForeignTable, read_foreign_csv
from study.core.wording import format_count
from study.prediction import settings
from study.prediction.answers import fit_series_of_runs
from study.prediction.points import Series
from study.records import own_keys
from study.records.tidy import read_runs

RANKS_PREFIX = re.compile(r"([0-9]{1,9}):(.+)", re.S)
TABLES = (".csv", ".tsv", ".md")
NAMING_COLUMNS = (
    "benchmark",
    "dataset",
    "loader",
    "scaling",
    "batch_size",
)  # columns that always name a series of runs.csv


def read_series_files(
    names: Iterable[str], work: str, ranks_per_node: int | None = None, unit: str | None = None
) -> list[Series]:
    """Read the series in files of any known kind; all logs of one kind and one job are one series.

    names: paths, or ``RANKS:PATH`` of a log that does not name its ranks. Raises `StudyError`.
    """
    names = list(names)
    series: list[tuple[str, Series]] = []  # with the file, or the kind of logs
    logs: dict[tuple[str, str, str | None], list[tuple[int, RunValue]]] = {}
    notes_by_log: dict[tuple[str, str, str | None], list[str]] = {}
    for name in names:
        ranks, path = _split_ranks(name)
        if path.suffix.lower() in TABLES:
            table = _read_table(path, ranks, work, ranks_per_node, unit)
            if not isinstance(table, RunValue):
                series += [(name, each) for each in table]
                continue
            kind, run_value = "history", table
        else:
            kind, run_value = _read_log(path)
        other_ranks = run_value.ranks if ranks and run_value.ranks != ranks else None
        ranks = ranks or run_value.ranks
        if ranks is None:
            raise StudyError(f"{path}: the {kind} log does not name its ranks; give RANKS:{path}, such as 8:{path}")
        if not 0 < run_value.value < np.inf:
            raise StudyError(f"{path}: gives {run_value.value:g} for {run_value.column}; above 0 is expected")
        key = f"{kind} {run_value.job}".strip(), run_value.column, run_value.unit
        logs.setdefault(key, []).append((ranks, run_value))
        contradiction = (
            f"{path} names {format_count(other_ranks, 'rank')}; the {ranks} before its name are used"
            if other_ranks
            else ""
        )
        notes_by_log.setdefault(key, []).extend((run_value.note, contradiction))
    for key, runs in logs.items():
        kind, column, own_unit = key
        notes = [note for note in dict.fromkeys(notes_by_log[key]) if note]
        frame = pd.DataFrame([{"ranks": ranks, column: run_value.value} for ranks, run_value in runs])
        frame["series"] = kind
        for each in build_series(frame, kind, work, ranks_per_node, own_unit or unit):
            series.append((own_unit or column, replace(each, notes=[*each.notes, *notes])))
    return _make_names_unique(series)


def _make_names_unique(series: list[tuple[str, Series]]) -> list[Series]:
    """Make the series' names unique: append the file or the quantity, else a number."""
    name_counts = Counter(each.name for _, each in series)
    full = [f"{each.name} ({place})" if name_counts[each.name] > 1 else each.name for place, each in series]
    used_names: Counter[str] = Counter()
    renamed_series = []
    for name, (_, each) in zip(full, series, strict=True):
        used_names[name] += 1
        renamed_series.append(replace(each, name=name if used_names[name] == 1 else f"{name} {used_names[name]}"))
    return renamed_series


def _split_ranks(name: str) -> tuple[int | None, Path]:
    """Split ``RANKS:PATH`` into ranks and path; None where there are no ranks."""
    match = RANKS_PREFIX.fullmatch(name)
    if match and not Path(name).exists():
        if int(match[1]) < 1:
            raise StudyError(f"{name}: the ranks before the colon must be at least 1")
        return int(match[1]), Path(match[2])
    return None, Path(name)


def _read_log(path: Path) -> tuple[str, RunValue]:
    """Read a log by the first reader that knows it; returns the kind of log and the run's value."""
    text = read_log_text(path)
    for kind, read in LOGS.items():
        try:
            run_value = read(text)
        except StudyError as error:
            raise StudyError(f"{path}: {error}") from None
        if run_value is not None:
            return kind, run_value
    formats, tables = ", ".join(LOGS), " or ".join(TABLES)
    raise StudyError(f"{path}: is not a table ({tables}), and has no lines of {formats}, {LEAST_STEPS} steps at least")


def _read_table(
    path: Path, ranks: int | None, work: str, ranks_per_node: int | None, unit: str | None
) -> list[Series] | RunValue:
    """Read a CSV file: our columns, this project's `runs.csv`, an export of W&B or MLflow, or a history of one run.

    Of an export, rows of runs that did not finish, or that lack the ranks or the time, are left out. A history has no
    column with ranks (they are given before the file's name): its value is the median of the later half.
    """
    table = read_foreign_csv(path, REMEDY)
    if {"gpus", "record", "time_per_epoch_s", "status"} <= set(table.frame):
        return _read_runs_csv(path, work)
    table = clear_placeholders(table)
    columns = match_columns(table.frame)
    measured = next((name for name in MEASURED if name in columns), None)
    if ranks is not None:
        return read_history(path, table, columns, measured)
    table, columns = add_ranks(table, columns)
    plain_names = {normalize_name(name) for name in table.frame}
    has_own_columns = "ranks" in plain_names and any(name in plain_names for name in (*TIMES, THROUGHPUT))
    if has_own_columns:
        return read_points(path, work, ranks_per_node, unit)
    if "ranks" not in columns or measured is None:
        raise StudyError(
            f"{path}: line {table.header}: {_describe_missing_columns(table, columns, measured)}; {REMEDY}"
        )
    return read_export(path, table, columns, measured, work, ranks_per_node, unit)


def _describe_missing_columns(table: ForeignTable, columns: dict[str, str], measured: str | None) -> str:
    """Describe the columns that a table of points lacks, the names that are known, and the table's columns."""
    lacking = []
    if "ranks" not in columns:
        lacking.append("there is no column 'ranks' (or GPUs, world_size, num_nodes and gpus_per_node)")
        if "nodes" in columns:
            lacking.append(
                f"{columns['nodes']!r} counts nodes: name it ranks, so that each node is a rank, or add the ranks"
            )
    if measured is None:
        lacking.append(
            "no column with times or a throughput is known: name it time_per_step_s, time_per_epoch_s, runtime_s or "
            "throughput (with --unit img/s, or img/s/GPU if it is that of one GPU)"
        )
        lacking += [f"{name!r} may be minutes or the least value: write (minutes)"
                    for name in table.frame if re.search(r"[(\[]\s*min\s*[)\]]$", name.strip(), re.I)]  # fmt: skip
    read = ", ".join(f"{columns[name]!r} is read as {name}" for name in ("ranks", measured) if name in columns)
    return f"{', and '.join(lacking)}{read and f'; {read}'}; the file has {', '.join(table.frame)}"


def _read_runs_csv(path: Path, work: str) -> list[Series]:
    """Read the runs of a `runs.csv` that a prediction uses (`settings.select_runs`) as measured series.

    A series has the runs that are alike in all grid keys but ranks and repeat; those that differ are in its name, of a
    command without the keys that it does not have.
    """
    selection = settings.select_runs(read_runs(path))
    runs = selection.used.reset_index(drop=True)
    if runs.empty:
        raise StudyError(f"{path}: has no successful run with a runtime_s that a prediction can use")
    keys = [name for name in (*settings.WORKLOAD, *settings.SERIES) if name in runs and name not in NAMING_COLUMNS]
    differing = [name for name in keys if runs[name].nunique(dropna=False) > 1]
    words = {name: runs[name].astype(str) for name in NAMING_COLUMNS if name in runs}
    words |= {name: f"{name}=" + runs[name].astype(str) for name in differing}
    lacking = own_keys.list_lacking_columns(runs)
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
    left_out = [f"{format_count(number, 'run')} left out: {reason}" for reason, number in selection.left_out.items()]
    notes = [*left_out, *selection.problems]
    name_of = dict(
        zip(runs[[*settings.WORKLOAD, *settings.SERIES]].itertuples(index=False, name=None), names, strict=True)
    )
    fitted = {name_of[key]: series for key, series in fit_series_of_runs(runs) if key in name_of}
    return [
        replace(each, notes=[*each.notes, *notes], runs=fitted.get(each.name))
        for each in build_series(table, path, work, origin="measured")
    ]
