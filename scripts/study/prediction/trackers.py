"""Points in what experiment trackers export: tables of runs, histories of one run, and MLflow's folders of runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.files import read_text
from study.core.foreign_csv import ForeignTable
from study.core.wording import counted
from study.prediction import units
from study.prediction.logs import Found
from study.prediction.points import COLUMNS, THROUGHPUT, TIMES, Series, column_of, series_of

# What exports call the columns, in lower case with underscores, without prefixes such as config., summary. and metrics.
ALIASES = {
    "ranks": ("world_size", "num_gpus", "n_gpus", "ngpus", "ngpu", "gpus", "gpu_count", "num_processes", "num_ranks",
              "n_ranks", "nproc", "num_devices", "devices", "num_workers_total"),
    "nodes": ("num_nodes", "nnodes", "n_nodes", "node_count"),
    "time_per_step_s": ("step_time", "step_time_s", "time_per_step", "seconds_per_step", "step_time_ms",
                        "time_per_step_ms", "iteration_time", "iteration_time_ms", "elapsed_time_per_iteration_ms",
                        "time_per_iteration_ms", "iter_time", "train_step_timing_in_s"),
    "time_per_epoch_s": ("epoch_time", "epoch_time_s", "time_per_epoch", "epoch_duration", "epoch_time_ms"),
    THROUGHPUT: ("samples_per_second", "train_samples_per_second", "images_per_second", "tokens_per_second",
                 "train_tokens_per_second", "samples_per_s", "images_per_s", "tokens_per_s", "samples_per_sec",
                 "images_per_sec", "tokens_per_sec", "tokens_per_sec_per_gpu", "tokens_per_second_per_gpu",
                 "tokens_per_second_per_device", "throughput(tps)", "samples/s", "images/s", "tokens/s"),
    "runtime_s": ("_runtime", "runtime", "train_runtime", "duration"),
}  # fmt: skip
ENDS = {"_ms": 1e-3, "(ms)": 1e-3}
PREFIX = re.compile(r"^(config|summary|params|metrics|tags|train|perf|system|throughput_metrics|time_metrics)[./]")
NOT_CLEAR = ("batch_size", "gradient_mb")  # of a rank or of all: configurations of programs do not say it
STATES = ("state", "status")
FINISHED = ("finished", "ok", "completed", "success")
NO_VALUE = ("NaN", "nan", "None", "null", "-", "Infinity")
DURATION = r"([0-9.]+)\s*(ms|s|min|h|d)"  # of MLflow's page
SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
MEASURED = ("time_per_step_s", "time_per_epoch_s", THROUGHPUT, "runtime_s")  # the first counts: trackers add a runtime


def mlflow_run(path: Path) -> Found:
    """The folder of a run in MLflow's file store: its parameters name the ranks, its metrics the times of the steps.

    Raises `StudyError` if it is none, or has no known metric.
    """
    metrics, parameters = path / "metrics", path / "params"
    if not metrics.is_dir():
        raise StudyError(f"{path}: is a folder without metrics/, which a run of MLflow has; a file is expected")
    files = {each.relative_to(metrics).as_posix(): each for each in sorted(metrics.rglob("*")) if each.is_file()}
    known = renamed(pd.DataFrame(columns=list(files)))
    measured = next((name for name in MEASURED if name in known), None)
    if measured is None:
        raise StudyError(f"{metrics}: no metric with times or a throughput; it has {', '.join(files) or 'none'}")
    rows = [line.split() for line in read_text(files[known[measured]]).splitlines() if line.strip()]
    try:
        values = [float(row[1]) for row in rows]
    except (IndexError, ValueError):
        raise StudyError(f"{files[known[measured]]}: lines with a time, a value and a step are expected") from None
    names = [each.name for each in sorted(parameters.iterdir())] if parameters.is_dir() else []
    of_ranks = renamed(pd.DataFrame(columns=names)).get("ranks")
    text = read_text(parameters / of_ranks).strip() if of_ranks else ""
    ranks = int(text) if re.fullmatch("[0-9]{1,9}", text) and int(text) else None
    factor = next((seconds for end, seconds in ENDS.items() if known[measured].lower().endswith(end)), 1.0)
    value = float(np.median(values[len(values) // 2 :])) if values else float("nan")
    unit = _unit_of(known[measured]) if measured == THROUGHPUT else None
    return Found(measured, value * (factor if measured in TIMES else 1.0), ranks, unit)


def of_export(
    path: Path,
    table: ForeignTable,
    known: dict[str, str],
    measured: str,
    work: str,
    ranks_per_node: int | None,
    unit: str | None,
) -> list[Series]:
    """The series in a table of runs. Rows of runs that did not finish or that lack a value are left out and counted.

    Args:
        path: of the file.
        table: its content.
        known: {our name: the file's name} of its columns.
        measured: our name of the column that is used.
        work: as in `read_points`.
        ranks_per_node: as in `read_points`.
        unit: as in `read_points`.

    Raises: `StudyError` if no row is left, and with line and column for what is no number.
    """
    kept = pd.Series(True, table.frame.index)
    for name in table.frame:
        if PREFIX.sub("", name.lower()) in STATES:
            kept &= table.frame[name].isna() | table.frame[name].astype(str).str.lower().isin(FINISHED)
    used = [known["ranks"], known[measured]]
    kept &= table.frame[used].notna().all(axis=1) & ~table.frame[used].isin(NO_VALUE).any(axis=1)
    if not kept.any():
        raise StudyError(f"{path}: no row is of a finished run with {' and '.join(used)}")
    rest = ForeignTable(
        table.frame[kept].reset_index(drop=True),
        [line for line, keep in zip(table.lines, kept, strict=True) if keep],
        table.decimal,
    )
    names = [name for name in (*COLUMNS, measured) if name in known and name not in (*TIMES, THROUGHPUT)]
    columns = {name: column_of(rest, known[name], name, path) for name in dict.fromkeys(names)}
    columns[measured] = _values(rest, known[measured], measured, path)
    if measured == THROUGHPUT and unit is None and "unit" not in columns:
        unit = _unit_of(known[measured])
    found = series_of(pd.DataFrame(columns), path, work, ranks_per_node, unit, lines=rest.lines)
    told = [f"read {', '.join(f'{known[name]} as {name}' for name in columns)}"]
    if not kept.all():
        told.append(f"{counted(int((~kept).sum()), 'row')} of runs that did not finish or lack a value left out")
    return [dataclasses.replace(each, notes=[*each.notes, *told]) for each in found]


def history(path: Path, table: ForeignTable, known: dict[str, str], measured: str | None) -> Found:
    """The history of one run, a row per step, as W&B's API and MLflow's files have it."""
    if "ranks" in known:
        raise StudyError(f"{path}: has a column {known['ranks']!r}; leave the ranks before its name out")
    if measured is None:
        raise StudyError(f"{path}: line 1: no column with times or a throughput; the file has {', '.join(table.frame)}")
    values = _values(table, known[measured], measured, path)
    values = values[np.isfinite(values)]
    if not len(values):
        raise StudyError(f"{path}: column {known[measured]!r} has no number")
    if measured == "runtime_s":  # seconds since the start, in each row
        return Found(measured, float(values.max()), None)
    unit = _unit_of(known[measured]) if measured == THROUGHPUT else None
    return Found(measured, float(np.median(values[len(values) // 2 :])), None, unit)


def renamed(frame: pd.DataFrame) -> dict[str, str]:
    """{our name: the file's name} of each column that is known by a name; the first one of each counts."""
    plain: dict[str, str] = {}
    for name in frame:
        bare = str(name).strip().lower().replace(" ", "_")
        while (shorter := PREFIX.sub("", bare)) != bare:
            bare = shorter
        plain.setdefault(bare, str(name))
    found = {}
    for ours in (name for name in COLUMNS if name not in NOT_CLEAR):
        for other in (ours, *ALIASES.get(ours, ())):
            if other in plain:
                found[ours] = plain[other]
                break
    return found


def _unit_of(name: str) -> str | None:
    """The unit in the name of a column such as train_tokens_per_sec_per_gpu; None if it names none."""
    bare = PREFIX.sub("", name.strip().lower())
    try:
        units.throughput(bare)
    except ValueError:
        return None
    return bare


def _values(table: ForeignTable, name: str, ours: str, path: Path) -> pd.Series:
    """A measured column in seconds, or in its own unit of throughput. Durations may be such as 1.2min or 2h."""
    factor = next((seconds for end, seconds in ENDS.items() if name.strip().lower().endswith(end)), 1.0)
    texts = table.frame[name].astype(object)
    as_text = texts.astype(str).str.fullmatch(DURATION)
    seconds = [_seconds(str(cell)) if is_one else cell for cell, is_one in zip(texts, as_text, strict=True)]
    values = column_of(
        ForeignTable(table.frame.assign(**{name: seconds}), table.lines, table.decimal), name, ours, path
    )
    return values * (factor if ours in TIMES else 1.0)


def _seconds(text: str) -> str:
    match = re.fullmatch(DURATION, text)
    return repr(float(match[1]) * SECONDS[match[2]]) if match else text
