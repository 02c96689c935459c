"""Series of points for `study predict` in CSV files: those that people write, and `runs.csv` of this project.

Points that people bring are ``imported``: they never enter a mean with measured ones. Those of a series that has
the name of a measured one are further points of it, and marked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from study.contrib.readers.series_tables import COLUMNS, COUNTS, TEXTS, THROUGHPUT, TIMES, Where, build_series
from study.core import throughput_units
from study.core.errors import StudyError
from study.core.foreign_csv import ForeignTable, explain_unclear_marks, read_foreign_csv
from study.core.wording import format_count
from study.prediction import settings
from study.prediction.answers import fit_series_of_runs
from study.prediction.points import Series
from study.records import own_keys
from study.records.tidy import read_runs

REMEDY = "correct the file"
MEASURED = "measured"
# Other names of our columns, in lower case with underscores; a time may have a unit behind it.
OTHER_NAMES = {
    "ranks": ("gpus", "num_gpus", "n_gpus", "ngpus", "world_size", "num_ranks", "num_processes", "num_devices"),
    "nodes": ("num_nodes", "n_nodes", "nnodes"),
    "time_per_step_s": ("step_time", "time_per_step", "iteration_time", "time_per_iteration"),
    "time_per_epoch_s": ("epoch_time", "time_per_epoch"),
    "runtime_s": ("runtime", "duration", "time_to_train", "time_to_solution", "total_time", "wall_time", "walltime"),
}
MOST_NAMED = 8  # columns that are not read
# Last words of the names of what changes between repeats without changing the work.
OF_REPEATS = ("seed", "repeat", "rep", "replicate", "trial", "attempt", "run", "port", "dir", "folder", "url", "user",
              "host", "hostname", "commit", "date", "time", "timestamp")  # fmt: skip
NAMING_COLUMNS = ("benchmark", "dataset", "loader", "scaling", "batch_size")  # always name a series of runs.csv


def read_series_files(
    paths: Iterable[str], work: str, ranks_per_node: int | None = None, unit: str | None = None
) -> list[Series]:
    """Read the series in CSV files: our columns (`read_points`), or this project's `runs.csv`. Raises `StudyError`."""
    series: list[tuple[str, Series]] = []  # with the file
    for path in map(Path, paths):
        table = read_foreign_csv(path, REMEDY)
        is_of_project = {"gpus", "record", "time_per_epoch_s", "status"} <= set(table.frame)
        read = _read_runs_csv(path, work) if is_of_project else read_points(path, work, ranks_per_node, unit)
        series += [(str(path), each) for each in read]
    return _make_names_unique(_join_imported_points(series))


def _join_imported_points(series: list[tuple[str, Series]]) -> list[tuple[str, Series]]:
    """The series, each with its file; points that people bring for a measured series, by its name, are added to it."""
    measured = Counter(each.name for _, each in series if each.origin == MEASURED)
    further = [(path, each) for path, each in series if each.origin != MEASURED and measured[each.name] == 1]
    joined = []
    for path, each in series:
        if each.origin == MEASURED:
            for other_path, other in further:
                each = _add_imported_points(each, other, other_path) if other.name == each.name else each
        elif measured[each.name] == 1:
            continue
        joined.append((path, each))
    return joined


def _add_imported_points(measured: Series, imported: Series, path: str) -> Series:
    """A measured series with the points of an imported one at counts of which it has none.

    Raises `StudyError` if these are not times of runs.
    """
    if imported.quantity != measured.quantity:
        raise StudyError(
            f"{path}: series {imported.name!r} has {imported.quantity}, the measured runs of this name have "
            f"{measured.quantity}: give this, or give the series another name"
        )
    is_new = ~imported.points["ranks"].isin(measured.points["ranks"])
    new = imported.points[is_new]
    counts = tuple(new["ranks"].astype(int))
    note = f"imported from {path}, not measured here: the times on {', '.join(map(str, counts)) or 'no'} ranks"
    if not is_new.all():
        known = ", ".join(f"{count:.0f}" for count in imported.points["ranks"][~is_new])
        note += f"; its times on {known} ranks are not used, since these are there"
    return replace(
        measured,
        points=pd.concat([measured.points, new]).sort_values("ranks", ignore_index=True),
        notes=[note, *measured.notes, *imported.notes],
        imported=(*measured.imported, *counts),
        runs=None,  # of the further points only the times are known
    )


def _make_names_unique(series: list[tuple[str, Series]]) -> list[Series]:
    """Make the series' names unique: append the file, else a number."""
    name_counts = Counter(each.name for _, each in series)
    full = [f"{each.name} ({place})" if name_counts[each.name] > 1 else each.name for place, each in series]
    used_names: Counter[str] = Counter()
    renamed_series = []
    for name, (_, each) in zip(full, series, strict=True):
        used_names[name] += 1
        renamed_series.append(replace(each, name=name if used_names[name] == 1 else f"{name} {used_names[name]}"))
    return renamed_series


def read_points(path: Path, work: str, ranks_per_node: int | None = None, unit: str | None = None) -> list[Series]:
    """The series in a CSV file.

    Args:
        path: with the columns of `docs/prediction.md`, "Points from a CSV file".
        work: what scaling keeps fixed, one of `WORKS`.
        ranks_per_node: of the machine, where there is no column ``nodes``.
        unit: of the throughput, where there is no column ``unit``; with ``/GPU`` it is that of one rank.

    Raises: `StudyError` with line and column for what is not as expected.
    """
    table = read_foreign_csv(path, REMEDY)
    known = _find_known_columns(table, path)
    frame = pd.DataFrame({ours: _read_column(table, name, ours, path) for ours, name in known.items()})
    time_unit = None
    for ours in (name for name in TIMES if name in frame):
        _, time_unit, seconds = _split_time_title(known[ours])
        frame[ours] *= seconds
    if THROUGHPUT in frame:
        place = f"{path}: line {table.header}, column {known[THROUGHPUT]!r}"
        unit = _combine_units(frame, known[THROUGHPUT], unit, place)
    _check_ranks(frame, known, path)
    where = Where(table.lines, table.header, known)
    all_series = build_series(frame, path, work, ranks_per_node, unit, where=where)
    unread = table.frame[[name for name in table.frame if name not in known.values()]]
    keys = [frame["ranks"], *(frame[name].astype(str) for name in frame if name == "series")]
    notes = [*_describe_other_names(known), *_describe_not_read(list(unread)), *_describe_differing(unread, keys)]
    return [replace(each, notes=[*each.notes, *notes], unit=time_unit or each.unit) for each in all_series]


def _normalize_name(name: str) -> str:
    """The name of a column in lower case, with underscores."""
    return "_".join(re.split(r"[\s-]+", name.strip().lower()))


def _find_known_columns(table: ForeignTable, path: Path) -> dict[str, str]:
    """{our name: the file's name} of the columns that are read.

    Other names count where ours are not there, times before throughputs. Raises `StudyError` if two columns are one,
    or if there are no ranks or no times.
    """
    known: dict[str, str] = {}
    for name in table.frame:
        ours = _normalize_name(name)
        if ours in known:
            raise StudyError(f"{path}: line {table.header}: {known[ours]!r} and {name!r} are one column; keep one")
        if ours in COLUMNS:
            known[ours] = name
    names = {_normalize_name(_split_time_title(name)[0]): name for name in reversed([*table.frame])}
    others = {ours: names[other] for ours, alike in OTHER_NAMES.items() for other in reversed(alike) if other in names}
    if title := _find_throughput_title(table.frame):
        others[THROUGHPUT] = title
    known |= {ours: others[ours] for ours in COUNTS if ours in others and ours not in known}
    quantities = (*TIMES, THROUGHPUT)
    if not any(name in known for name in quantities):
        known |= {ours: others[ours] for ours in [name for name in quantities if name in others][:1]}
    lacking = _describe_missing_columns(table, known)
    if lacking:
        names_in_file = ", ".join(table.frame)
        raise StudyError(
            f"{path}: line {table.header}: {', and '.join(lacking)}; the file has {names_in_file}; {REMEDY}"
        )
    return known


def _describe_missing_columns(table: ForeignTable, known: dict[str, str]) -> list[str]:
    """Describe the columns that a table of points lacks, and the names that are known."""
    lacking = []
    if "ranks" not in known:
        lacking.append("there is no column 'ranks' (or GPUs, world_size)")
        if "nodes" in known:
            lacking.append(
                f"{known['nodes']!r} counts nodes: name it ranks, so that each node is a rank, or add the ranks"
            )
    if not any(name in known for name in (*TIMES, THROUGHPUT)):
        lacking.append(
            "no column with times or a throughput is known: name it time_per_step_s, time_per_epoch_s, runtime_s or "
            "throughput (with --unit img/s, or img/s/GPU if it is that of one GPU)"
        )
        lacking += [f"{name!r} may be minutes or the least value: write (minutes)"
                    for name in table.frame if re.search(r"[(\[]\s*min\s*[)\]]$", name.strip(), re.I)]  # fmt: skip
    return lacking


def _split_time_title(name: str) -> tuple[str, str | None, float]:
    """Split a title such as ``step time (ms)`` or ``step_time_ms``: (name, its unit if not seconds, its seconds)."""
    if (title := throughput_units.parse_time_title(name)) is not None:
        unit = str(re.findall(throughput_units.IN_BRACKETS, name)[-1]).strip()
        return title[0], None if title[1] == 1 else unit, title[1]
    stem, _, unit = name.strip().lower().rpartition("_")
    return (stem, "ms", 1e-3) if stem and unit == "ms" else (name, None, 1.0)


def _find_throughput_title(names: Iterable[str]) -> str | None:
    """Find the first name that has the unit of a throughput; one with an unknown unit counts only without others."""
    units = {name: unit for name in names if (unit := throughput_units.parse_throughput_title(name)) is not None}
    return min(units, key=lambda name: not throughput_units.is_throughput(units[name]), default=None)


def _combine_units(frame: pd.DataFrame, name: str, unit: str | None, place: str) -> str | None:
    """Combine the given unit of a throughput with its owner (GPU, node) in the column's title, else the title's unit.

    So a throughput per GPU is never that of all, whatever else says img/s. A column ``unit`` gets the owner too.

    Raises `StudyError` with the ``place`` for a unit that contradicts the title or is not known.
    """
    owner = throughput_units.find_owner(name)
    try:
        if "unit" in frame and owner:
            frame["unit"] = frame["unit"].map(lambda each: throughput_units.add_owner(each, owner), na_action="ignore")
        if unit is not None:
            return throughput_units.add_owner(unit, owner) if owner else unit
        unit = None if "unit" in frame else throughput_units.parse_throughput_title(name)
        if unit is not None:
            throughput_units.parse_throughput(unit)
        return unit
    except ValueError as error:
        example = {"rank": "img/s/GPU", "node": "img/s/node"}.get(owner or "", "img/s")
        raise StudyError(
            f"{place}: {error}; rename it throughput and give its unit, such as --unit {example}"
        ) from None


def _check_ranks(frame: pd.DataFrame, known: dict[str, str], path: Path) -> None:
    """Raise `StudyError` if the ranks stay while the nodes change, and may be those of a node by their name."""
    if "nodes" not in frame or _normalize_name(known["ranks"]) in ("ranks", "world_size"):
        return
    ranks, nodes = frame["ranks"].unique(), frame["nodes"].unique()
    if len(ranks) == 1 and len(nodes) > 1:
        raise StudyError(
            f"{path}: column {known['ranks']!r} is {ranks[0]:g} on {', '.join(f'{each:g}' for each in sorted(nodes))} "
            "nodes; give the ranks of all nodes in a column ranks"
        )


def _describe_other_names(known: dict[str, str]) -> Iterator[str]:
    """A sentence on the columns that are read by another name than ours."""
    others = [f"{name} as {ours}" for ours, name in known.items() if _normalize_name(name) != ours]
    if others:
        yield f"read {', '.join(others)}"


def _describe_not_read(names: list[str]) -> Iterator[str]:
    """A sentence on the columns of a file that are not read; none without one."""
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield f"columns that are not read: {', '.join(names[:MOST_NAMED])}{more}"


def _describe_differing(columns: pd.DataFrame, keys: list[pd.Series]) -> Iterator[str]:
    """A sentence on the columns that are not read in which rows that are alike in ``keys`` differ."""
    names = list(columns)
    texts = columns[[name for name in names if _is_setting(columns[name])]].astype(str)
    if apart := _list_differing_settings(texts, keys):
        yield (
            f"rows of the same ranks differ in {' and '.join(apart[:MOST_NAMED])}, and were averaged: if they are of "
            "several jobs, name these in a column series"
        )


def _read_column(table: ForeignTable, name: str, ours: str, path: object) -> pd.Series:
    """A column of a file as `COLUMNS` has it; raises `StudyError` with the line of a cell that is not of its kind."""
    if ours in TEXTS:
        return table.frame[name]
    values = table.convert_column(name)
    whole = ours in COUNTS
    wrong = table.frame[name].notna().to_numpy() & ~np.isfinite(values)
    wrong |= whole & table.frame[name].astype(str).str.strip().str[-1:].str.isalpha().to_numpy()  # 1k: 1000 or 1024
    wrong |= whole & (np.mod(values, 1, where=np.isfinite(values), out=np.ones(len(values))) != 0)
    if wrong.any():
        place = int(wrong.argmax())
        cell = table.frame[name].iloc[place]
        cell_text = "an empty cell" if pd.isna(cell) else repr(str(cell)[:40])
        why = explain_unclear_marks(str(cell), table.decimal)
        raise StudyError(
            f"{path}: line {table.lines[place]}, column {name!r}: {cell_text} is not a "
            f"{'whole' if whole else 'finite'} number{why}; {REMEDY}"
        )
    return pd.Series(values, table.frame.index)


def _list_differing_settings(texts: pd.DataFrame, keys: list[pd.Series]) -> list[str]:
    """The settings without which some runs that are alike in ``keys`` would have different ones.

    A setting that follows the keys, as a global batch follows the ranks, is none of them. Nor is one in which all runs
    differ, such as the name of a folder. Of settings that change together, the one with the fewest values is taken, and
    words before numbers.
    """
    candidates = [name for name in texts if 1 < texts[name].nunique() < len(texts) and not _is_of_repeats(name)]
    differing: list[str] = []
    for name in sorted(candidates, key=lambda name: (texts[name].nunique(), not _is_of_words(texts[name]))):
        if _differs_within(texts[name], [*keys, *(texts[each] for each in differing)]):
            differing.append(name)
    return differing


def _is_setting(cells: pd.Series) -> bool:
    """Whether a column that does not say so may be a setting: few words, or few numbers. A metric has many numbers."""
    number = cells.nunique()
    return 1 < number < len(cells) if _is_of_words(cells) else 1 < number <= len(cells) / 2


def _is_of_repeats(name: str) -> bool:
    """Whether a column tells repeats apart by its name, such as ``seed``, or says where and when a run was."""
    return re.split(r"[\W_]+", name.lower().strip())[-1] in OF_REPEATS


def _differs_within(cells: pd.Series, keys: list[pd.Series]) -> bool:
    return bool((cells.groupby([each.to_numpy() for each in keys]).nunique() > 1).any())


def _is_of_words(cells: pd.Series) -> bool:
    return bool(pd.to_numeric(cells, errors="coerce").isna().all())


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
        for each in build_series(table, path, work, origin=MEASURED)
    ]
