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

import pandas as pd

from study.contrib.readers.series_tables import COLUMNS, COUNTS, NUMBERS, build_series
from study.core.csv_files import FINITE, TEXT, WHOLE, read_csv
from study.core.errors import StudyError
from study.core.wording import format_count
from study.prediction import settings
from study.prediction.answers import fit_series_of_runs
from study.prediction.points import Series
from study.records import own_keys
from study.records.tidy import read_runs

REMEDY = "a CSV file with commas, decimal points and the columns of docs/prediction.md is expected"
MEASURED = "measured"
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
        names = set(read_csv(path, others=lambda _: TEXT, remedy=REMEDY))
        is_of_project = {"gpus", "record", "time_per_epoch_s", "status"} <= names
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
    frame = read_csv(path, {"ranks": WHOLE}, _find_kind, REMEDY)
    all_series = build_series(frame[[name for name in frame if name in COLUMNS]], path, work, ranks_per_node, unit)
    unread = frame[[name for name in frame if name not in COLUMNS]]
    keys = [frame["ranks"], *(frame[name].astype(str) for name in frame if name == "series")]
    notes = [*_describe_not_read(list(unread)), *_describe_differing(unread, keys)]
    return [replace(each, notes=[*each.notes, *notes]) for each in all_series]


def _find_kind(name: str) -> str:
    """The kind of a column's values, see `study.core.csv_files`."""
    return WHOLE if name in COUNTS else FINITE if name in NUMBERS else TEXT


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
