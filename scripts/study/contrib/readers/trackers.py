"""Points in exports of experiment trackers: tables of runs, and histories of one run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from study.contrib.readers import jobs
from study.contrib.readers.logs import RunValue
from study.contrib.readers.own_tables import describe_not_read, format_first_names, read_column
from study.contrib.readers.series_tables import COLUMNS, THROUGHPUT, TIMES, Where, build_series
from study.core import throughput_units
from study.core.errors import StudyError
from study.core.foreign_csv import ForeignTable
from study.core.wording import format_count
from study.prediction.points import Series

# Units of names that do not tell them alone: of torchtitan, Lightning and Composer.
UNITS = {
    "throughput(tps)": "tokens/s/GPU",
    "global/samples_per_sec": "samples/s",
    "device/samples_per_sec": "samples/s/GPU",
    "device/tokens_per_sec": "tokens/s/GPU",
}
AMBIGUOUS = ("batch_size",)  # of a rank or of all: configurations of programs do not say it
# What exports call the columns, in lower case with underscores, without prefixes such as config., summary. and metrics.
ALIASES = {
    "ranks": ("world_size", "num_gpus", "n_gpus", "ngpus", "ngpu", "gpus", "num_processes", "num_ranks", "n_ranks",
              "num_devices", "num_workers_total"),
    "nodes": ("num_nodes", "nnodes", "n_nodes", "node_count"),
    # W&B's GPU count is that of the host, Lightning's devices that of a node.
    "ranks_per_node": ("gpus_per_node", "num_gpus_per_node", "n_gpus_per_node", "ngpus_per_node", "devices_per_node",
                       "accelerators_per_node", "processes_per_node", "nproc_per_node", "ntasks_per_node",
                       "tasks_per_node", "devices", "nproc", "gpu_count"),
    "time_per_step_s": ("step_time", "step_time_s", "time_per_step", "seconds_per_step", "step_time_ms",
                        "time_per_step_ms", "iteration_time", "iteration_time_ms", "elapsed_time_per_iteration_ms",
                        "time_per_iteration_ms", "iter_time", "train_step_timing_in_s"),
    "time_per_epoch_s": ("epoch_time", "epoch_time_s", "time_per_epoch", "epoch_duration", "epoch_time_ms"),
    THROUGHPUT: ("samples_per_second", "train_samples_per_second", "images_per_second", "tokens_per_second",
                 "train_tokens_per_second", "samples_per_s", "images_per_s", "tokens_per_s", "samples_per_sec",
                 "images_per_sec", "tokens_per_sec", "tokens_per_sec_per_gpu", "tokens_per_second_per_gpu",
                 "tokens_per_second_per_device", "samples/s", "images/s", "tokens/s", *UNITS),
    "runtime_s": ("_runtime", "runtime", "train_runtime", "duration", "time_to_train", "time_to_solution", "total_time",
                  "wall_time", "walltime", "elapsed_time"),
}  # fmt: skip
# Our names and other programs' for them, but those which may be a setting.
KNOWN_NAMES = {*COLUMNS, *ALIASES, *(other for others in ALIASES.values() for other in others)} - {*AMBIGUOUS}
TITLES_OF_TIMES = {name for ours, names in ALIASES.items() if ours in TIMES for name in names}  # without a unit
UNIT_SUFFIXES = {"_ms": "ms"}
NO_OWNER = rf"(?!/(?:{throughput_units.OWNERS})s?(?![a-z/]))"  # throughput/GPU (img/s) has no prefix
PREFIX = re.compile(
    rf"^(config|summary|params|metrics|tags|train|perf|system|throughput{NO_OWNER}|throughput_metrics|time_metrics)[./]"
)
CONFIGURATION_PREFIX = re.compile(r"(config|params)[./]")  # the beginning of a setting's name
SPANS = ("__min", "__max")  # of W&B's charts, beside each value
RUN_FACTS = (
    "name",
    "id",
    "run_id",
    "run_name",
    "user",
    "tags",
    "notes",
    "created",
    "updated",
    "start_time",
    "end_time",
    "source_name",
    "source_type",
    "sweep",
    "hostname",
    "host",
)  # which are no settings
STATES = ("state", "status")
FINISHED = ("finished", "ok", "completed", "success")
NO_VALUE = ("NaN", "nan", "None", "null", "-", "Infinity")
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)\s*")  # of the trackers' pages: 1.5min, 1h 2m 3s
SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
OF_ONE_NODE = "; {} is that of a node, and nothing counts the nodes: one node is assumed"
SINCE_START = ("_runtime", "runtime")  # seconds since the start of the run, in each row of its history
MEASURED = ("time_per_step_s", "time_per_epoch_s", THROUGHPUT, "runtime_s")  # the first counts: trackers add a runtime


def clear_placeholders(table: ForeignTable) -> ForeignTable:
    """Replace a tracker's words for missing values by empty cells."""
    frame = table.frame.map(lambda cell: np.nan if cell in NO_VALUE else cell).astype(object)
    return dataclasses.replace(table, frame=frame)


def read_export(
    path: Path,
    table: ForeignTable,
    known: dict[str, str],
    measured: str,
    work: str,
    ranks_per_node: int | None,
    unit: str | None,
) -> list[Series]:
    """Read the series in a table of runs; rows of unfinished runs, or without a value, are left out and counted.

    Without a column ``series``, runs whose configuration differs on the same ranks are of several series (`name_jobs`).

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
    is_kept = pd.Series(True, table.frame.index)
    for name in table.frame:
        if PREFIX.sub("", name.lower()) in STATES:
            is_kept &= table.frame[name].isna() | table.frame[name].astype(str).str.lower().isin(FINISHED)
    used = [known["ranks"], known[measured]]
    is_kept &= table.frame[used].notna().all(axis=1)
    if not is_kept.any():
        raise StudyError(f"{path}: no row is of a finished run with {' and '.join(used)}")
    kept_table = dataclasses.replace(
        table,
        frame=table.frame[is_kept].reset_index(drop=True),
        lines=[line for line, keep in zip(table.lines, is_kept, strict=True) if keep],
    )
    names = [name for name in (*COLUMNS, measured) if name in known and name not in (*TIMES, THROUGHPUT)]
    columns = {name: read_column(kept_table, known[name], name, path) for name in dict.fromkeys(names)}
    columns[measured] = _read_values(kept_table, known[measured], measured, path)
    _check_nodes(columns, known, path)
    if measured == THROUGHPUT:
        place = f"{path}: line {table.header}, column {known[measured]!r}"
        unit = _combine_units(columns, known[measured], unit, place)
    notes = _name_jobs(columns, kept_table, known, path)
    where = Where(kept_table.lines, kept_table.header, known)
    all_series = build_series(pd.DataFrame(columns), path, work, ranks_per_node, unit, where=where)
    of_one_node = OF_ONE_NODE.format(known["ranks"]) if known["ranks"] == known.get("ranks_per_node") else ""
    read = ", ".join(f"{known[name]} as {name}" for name in columns if name in known)
    notes = [
        f"read {read}{of_one_node}",
        *notes,
        *_describe_unused_columns(kept_table, [known[name] for name in columns if name in known], known),
    ]
    if not is_kept.all():
        notes.append(
            f"{format_count(int((~is_kept).sum()), 'row')} of runs that did not finish or lack a value left out"
        )
    unit = _find_time_unit(known[measured]) if measured in TIMES else None
    unit = None if unit is None or throughput_units.parse_time_unit(unit) == 1 else unit
    return [dataclasses.replace(each, notes=[*each.notes, *notes], unit=unit or each.unit) for each in all_series]


def _describe_unused_columns(table: ForeignTable, read: Iterable[str], known: dict[str, str]) -> Iterator[str]:
    """Yield sentences on the columns of a table of runs that give no number, but for its state.

    read: the file's names of the columns that do. known: as in `read_export`.
    """
    used = {*read}
    if (ranks_per_node := known.get("ranks_per_node")) and known["ranks"].endswith(f" x {ranks_per_node}"):
        used.add(ranks_per_node)
    unread = [name for name in table.frame if name not in used and to_bare_name(name) not in STATES]
    settings = {*_select_settings(table, known.values())} if "series" not in known else set()
    job_columns = [name for name in unread if to_bare_name(name) in settings and not _is_run_fact(name)]
    if job_columns:
        sizes = (
            "; a batch size is used if the columns have the names ranks, batch_size and that of a time or throughput"
        )
        is_batch = any("batch" in to_bare_name(name) for name in job_columns)
        yield f"columns that only tell jobs apart: {format_first_names(job_columns)}{sizes if is_batch else ''}"
    yield from describe_not_read(name for name in unread if name not in job_columns)


def add_ranks(table: ForeignTable, known: dict[str, str]) -> tuple[ForeignTable, dict[str, str]]:
    """Add a column of ranks to a table that has only ranks per node.

    They are nodes x ranks of a node, or the latter alone where there is no column of nodes.
    """
    if "ranks" in known or "ranks_per_node" not in known:
        return table, known
    ranks_per_node = known["ranks_per_node"]
    if "nodes" not in known:
        return table, {**known, "ranks": ranks_per_node}
    name = f"{known['nodes']} x {ranks_per_node}"
    products = table.convert_column(known["nodes"]) * table.convert_column(ranks_per_node)
    cells = [repr(int(each)) if np.isfinite(each) and each % 1 == 0 else np.nan for each in products]
    return dataclasses.replace(table, frame=table.frame.assign(**{name: cells})), {**known, "ranks": name}


def _check_nodes(columns: Mapping[str, pd.Series], known: Mapping[str, str], path: Path) -> None:
    """Raise `StudyError` if the ranks stay while the nodes change: they are those of a node, by an unclear name."""
    if "nodes" not in columns or to_bare_name(known["ranks"]) in ("ranks", "world_size"):
        return
    ranks, nodes = columns["ranks"].unique(), columns["nodes"].unique()
    if len(ranks) == 1 and len(nodes) > 1:
        node_counts = ", ".join(f"{each:g}" for each in sorted(nodes))
        raise StudyError(
            f"{path}: column {known['ranks']!r} is {ranks[0]:g} on {node_counts} nodes; name it gpus_per_node if it "
            "is of one node, else world_size"
        )


def _name_jobs(columns: dict[str, pd.Series], table: ForeignTable, known: dict[str, str], path: Path) -> list[str]:
    """Add a column ``series`` where there is none and the runs are of several jobs; returns notes on it."""
    if "series" in columns:
        return []
    named_jobs = jobs.name_jobs(_select_settings(table, known.values()), columns["ranks"], path.stem)
    if named_jobs.names is not None:
        columns["series"] = named_jobs.names
    return named_jobs.notes


def _select_settings(table: ForeignTable, used: Iterable[str]) -> pd.DataFrame:
    """Select the columns with the runs' configuration from a table of runs, by their bare names.

    Those are the ones whose names say so, such as ``config.model``, and others of words. Other numbers are metrics
    where some names say so; where none does, they are settings if they may be (`jobs.is_setting`) or are batches.
    """
    frame = table.frame
    has_prefixed_names = any(CONFIGURATION_PREFIX.match(name.lower()) for name in frame)
    settings: dict[str, pd.Series] = {}
    for name in frame:
        if name in used or to_bare_name(name) in settings or _is_run_fact(name):
            continue
        is_prefixed = bool(CONFIGURATION_PREFIX.match(name.lower()))
        is_metric = not is_prefixed and has_prefixed_names and not bool(np.isnan(table.convert_column(name)).all())
        is_metric |= not is_prefixed and bool("/" in name or PREFIX.match(name.lower()))
        may_be = is_prefixed or "batch" in to_bare_name(name) or jobs.is_setting(frame[name])
        if may_be and not is_metric:
            settings[to_bare_name(name)] = frame[name]
    return pd.DataFrame(settings, index=frame.index)


def _is_run_fact(name: str) -> bool:
    """True if a column is no setting of the program: a fact of the run, or a column that is read."""
    short = to_bare_name(name)
    return short.startswith("_") or short in (*RUN_FACTS, *STATES) or short in KNOWN_NAMES


def read_history(path: Path, table: ForeignTable, known: dict[str, str], measured: str | None) -> RunValue:
    """Read the history of one run, a row per step, as W&B's API and charts and MLflow's files have it."""
    if "ranks" in known:
        raise StudyError(f"{path}: has a column {known['ranks']!r}; leave the ranks before its name out")
    if measured is None:
        raise StudyError(
            f"{path}: line {table.header}: no column with times or a throughput; the file has {', '.join(table.frame)}"
        )
    name = known[measured]
    alike = [each for each in table.frame if to_bare_name(each) == to_bare_name(name)]
    if len(alike) > 1:
        raise StudyError(f"{path}: line {table.header}: {', '.join(alike)} may each be {measured}; keep one")
    values = _read_values(table, name, measured, path)
    run_value = _summarize_steps(values.to_numpy(float), name, measured, f"{path}: column {name!r}")
    unread = describe_not_read(each for each in table.frame if each != name and not each.lower().endswith(SPANS))
    return dataclasses.replace(run_value, note="; ".join([run_value.note, *unread]))


def _summarize_steps(values: np.ndarray, name: str, measured: str, place: str) -> RunValue:
    """Summarize a run's steps: the median of the later half, or the last value of seconds since the start."""
    values = values[np.isfinite(values)]
    if not len(values):
        raise StudyError(f"{place}: has no number")
    if (
        measured == "runtime_s"
        and len(values) > 1
        and (to_bare_name(name) not in SINCE_START or (np.diff(values) < 0).any())
    ):
        raise StudyError(f"{place}: has several values that are not the seconds since the start; one is expected")
    value = float(values[-1] if measured == "runtime_s" else np.median(values[len(values) // 2 :]))
    unit = _find_unit(name, place) if measured == THROUGHPUT else None
    how = "" if measured == "runtime_s" else ", the median of the later half"
    return RunValue(measured, value, None, unit, f"read {name} as {measured}{how}")


def to_bare_name(name: str) -> str:
    """Reduce a column's name to its form in `ALIASES`: ``run 8 - train/Step Time (ms)`` becomes step_time."""
    text = re.sub(r"[ -]", "_", name.rpartition(" - ")[2].strip().lower())
    while (shorter := PREFIX.sub("", text)) != text:
        text = shorter
    titled = throughput_units.parse_time_title(text)
    if titled and titled[0] in TITLES_OF_TIMES:
        return titled[0]
    return re.sub(r"_?[(\[](ms|s)[)\]]$", r"_\1", text)


def match_columns(names: Iterable[str]) -> dict[str, str]:
    """Match columns to our names: {our name: the file's name}; the first column of each counts."""
    names_by_bare: dict[str, str] = {}
    for name in names:
        if not name.lower().endswith(SPANS):
            names_by_bare.setdefault(to_bare_name(name), name)
    columns = {}
    for ours in (name for name in (*COLUMNS, "ranks_per_node") if name not in AMBIGUOUS):
        for other in (ours, *ALIASES.get(ours, ())):
            if other in names_by_bare:
                columns[ours] = names_by_bare[other]
                break
    if THROUGHPUT not in columns and (
        title := _find_throughput_title(names_by_bare, has_times=any(name in columns for name in TIMES))
    ):
        columns[THROUGHPUT] = names_by_bare[title]
    return columns


def _find_throughput_title(names: Iterable[str], has_times: bool) -> str | None:
    """Find the first bare name that has the unit of a throughput; an unknown unit counts only without times."""
    titles = {name: unit for name in names if (unit := throughput_units.parse_throughput_title(name)) is not None}
    with_known_unit = [name for name, unit in titles.items() if throughput_units.is_throughput(unit)]
    return next(iter([*with_known_unit, *([] if has_times else titles)]), None)


def _find_unit(name: str, place: str) -> str | None:
    """Find the unit in a column's name, as train_tokens_per_sec_per_gpu or Throughput (img/s); None without one.

    Raises `StudyError` with the ``place`` if the title of a throughput has a unit that is not known.
    """
    text = to_bare_name(name)
    unit = UNITS.get(text) or throughput_units.parse_throughput_title(text)
    if unit is None:
        return text if throughput_units.is_throughput(text) else None
    try:
        throughput_units.parse_throughput(unit)
    except ValueError as error:
        example = {"rank": "img/s/GPU", "node": "img/s/node"}.get(throughput_units.find_owner(text) or "", "img/s")
        raise StudyError(
            f"{place}: {error}; rename it throughput and give its unit, such as --unit {example}"
        ) from None
    return unit


def _combine_units(columns: dict[str, pd.Series], name: str, unit: str | None, place: str) -> str | None:
    """Combine the given unit of a throughput with its owner (GPU, node) in the column's title, else the title's unit.

    So a throughput per GPU is never that of all, whatever else says img/s. A column ``unit`` gets the owner too.

    Raises `StudyError` with the ``place`` for a unit that contradicts the title or is not known.
    """
    if unit is None and "unit" not in columns:
        return _find_unit(name, place)
    owner = throughput_units.find_owner(to_bare_name(name))
    try:
        if "unit" in columns:
            row_units = columns["unit"]
            columns["unit"] = row_units.map(
                lambda each: each if pd.isna(each) else throughput_units.add_owner(each, owner)
            )
        return None if unit is None else throughput_units.add_owner(unit, owner)
    except ValueError as error:
        raise StudyError(f"{place}: {error}") from None


def _find_time_unit(name: str) -> str:
    """Find the unit at the end of a time column's name, as it is written; s without one."""
    if throughput_units.parse_time_title(name):
        return str(re.findall(throughput_units.IN_BRACKETS, name)[-1]).strip()
    return next((unit for end, unit in UNIT_SUFFIXES.items() if name.strip().lower().endswith(end)), "s")


def _read_values(table: ForeignTable, name: str, ours: str, path: Path) -> pd.Series:
    """Read a measured column, in seconds or in its unit of throughput. Durations may be such as 1.2min or 1h 2m."""
    if ours not in TIMES:
        return read_column(table, name, ours, path)
    cells = list(table.frame[name])
    durations = pd.Series([_parse_duration(str(cell)) for cell in cells], table.frame.index, dtype=float)
    plain_cells = [cell if np.isnan(duration) else np.nan for cell, duration in zip(cells, durations, strict=True)]
    others = table.frame.assign(**{name: pd.Series(plain_cells, table.frame.index, dtype=object)})
    numbers = read_column(dataclasses.replace(table, frame=others), name, ours, path)
    return durations.fillna((throughput_units.parse_time_unit(_find_time_unit(name)) or 1.0) * numbers)


def _parse_duration(text: str) -> float:
    """Parse a duration with units, such as 1h 2m 3s, to seconds; NaN if it is none."""
    text = text.strip()
    if not re.fullmatch(f"(?:{DURATION.pattern})+", text):
        return float("nan")
    return sum(float(number) * SECONDS[unit] for number, unit in DURATION.findall(text))
