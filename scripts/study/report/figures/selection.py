"""The data of a figure: selected runs, averages over repeats, published values. Nothing here draws."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.core.statistics import Sample, summarize
from study.records.power import NO_MEAN, OF_POWER, has_no_mean, modelled_note
from study.report.figures.description import Description, columns, draws, filters, several
from study.report.tables.kinds import selected
from study.report.tables.summary import published

NOT_MEASURED = "no run of this study has it"

Labels = dict[str, dict[str, str]]  # as in `Description`


@dataclass(frozen=True)
class Line:
    """One quantity of one series: arrays of equal length, NaN where a point has no value or no interval."""

    label: str
    series: int  # counted from 0 among the panel's series, as in the other classes
    quantity: int  # counted from 0 among the panel's quantities
    gpus: NDArray[np.int64]
    mean: NDArray[np.float64]
    ci95: NDArray[np.float64]  # half-width


@dataclass(frozen=True)
class Failed:
    """A point of one series whose repeats all failed, with the kinds of failure."""

    series: int
    gpus: int
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """Published points; ``series`` is the measured series that they belong to, or their own number."""

    label: str
    series: int
    gpus: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """The content of one panel; ``reason`` says why nothing is measured, None if there is a line."""

    title: str
    y_label: str
    y_scale: str
    series: int  # how many there are
    lines: tuple[Line, ...]
    failed: tuple[Failed, ...]
    published: tuple[Published, ...]
    counts: tuple[int, ...]  # every GPU count that the panel has, ascending
    reason: str | None


@dataclass(frozen=True)
class FigureData:
    """Everything that is drawn, and the texts."""

    name: str
    title: str
    subtitle: str
    notes: tuple[str, ...]
    caption: str
    panels: tuple[Panel, ...]


def select(description: Description, runs: pd.DataFrame, study: str) -> FigureData:
    """The `FigureData` of a figure.

    runs: the tidy table of runs. study: its name. Raises `StudyError` if no run belongs in the figure.
    """
    rows = _chosen(description, runs)
    panels = tuple(_panel(panel, rows, description) for panel in description.panels)
    return FigureData(
        description.name, description.title, _subtitle(rows, study), _notes(rows), description.caption, panels
    )


def _chosen(description: Description, runs: pd.DataFrame) -> pd.DataFrame:
    rows = selected(runs, partial(draws, description))
    if rows.empty:
        raise StudyError(f"figure {description.name} needs runs{filters(description)}; the study has none")
    for column in description.smallest:
        rows = rows[rows[column] == rows[column].min()]
    return rows


def _subtitle(rows: pd.DataFrame, study: str) -> str:
    found = {column: list(rows[column].unique()) for column in ("machine", "benchmark", "dataset")}
    told = {column: values[0] if len(values) == 1 else f"{len(values)} different" for column, values in found.items()}
    return ", ".join([f"study {study}", *(f"{column} {value}" for column, value in told.items())])


def _notes(rows: pd.DataFrame) -> tuple[str, ...]:
    """Properties of the runs that a reader of the figure needs to know."""
    notes = []
    crowded = sorted(rows.loc[rows["oversubscribed"].astype(bool), "gpus"].unique())
    if crowded:
        notes.append(f"oversubscribed (ranks had fewer cores than they should): {', '.join(map(str, crowded))} GPUs")
    notes += modelled_note(rows["power_source"])
    if not rows["code_is_current"].astype(bool).all():
        notes.append("some runs are of another version of the code")
    return tuple(notes)


def _panel(panel: dict[str, Any], rows: pd.DataFrame, description: Description) -> Panel:
    # A line must not mix different experiments: any other difference between the runs splits the lines too.
    others = [column for column in ("memory_mode", *columns()) if column in rows and column not in panel["by"]]
    also = [column for column in others if rows[column].nunique(dropna=False) > 1]
    by = [*panel["by"], *also]
    series = _series(rows, by, description.labels)
    all_lines = [
        _line(group, column, (number, _label(values, by, description.labels)), (index, text), panel)
        for index, (column, text) in enumerate(panel["quantities"].items())
        for number, (values, group) in enumerate(series)
    ]
    lines = tuple(line for line in all_lines if np.isfinite(line.mean).any())
    failed = tuple(point for number, (_, group) in enumerate(series) for point in _failed(number, group))
    published = tuple(_published(panel, [values for values, _ in series], description))
    counts = sorted({*rows["gpus"], *itertools.chain.from_iterable(points.gpus for points in published)})
    return Panel(
        panel["title"], panel["y_label"], panel["y_scale"], len(series), lines, failed, published,
        tuple(map(int, counts)), None if lines else _reason(panel, rows),
    )  # fmt: skip


def _series(rows: pd.DataFrame, by: list[str], labels: Labels) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """(values of ``by``, their rows) of each series, ordered as the labels are, else by value."""
    if not by:
        return [((), rows)]
    groups = [(values, group) for values, group in rows.groupby(by, dropna=False, sort=False)]
    return sorted(groups, key=lambda group: [_rank(*pair, labels) for pair in zip(by, group[0], strict=True)])


def _rank(column: str, value: Any, labels: Labels) -> tuple[int, Any]:
    known = list(labels.get(column, {}))
    return known.index(str(value)) if str(value) in known else len(known), value


def _label(values: Iterable[Any], by: Iterable[str], labels: Labels) -> str:
    told = zip(by, values, strict=True)
    return ", ".join(labels.get(name, {}).get(str(value), f"{name.replace('_', ' ')} {value}") for name, value in told)


def _line(
    group: pd.DataFrame, column: str, series: tuple[int, str], quantity: tuple[int, str], panel: dict[str, Any]
) -> Line:
    (number, series_label), (index, quantity_label) = series, quantity
    counts = np.array(sorted(group["gpus"].unique()))
    ok = group[group["status"] == "ok"]
    samples = [_sample(ok[ok["gpus"] == count], column) for count in counts]
    parts = [quantity_label] if len(panel["quantities"]) > 1 or not series_label else []
    return Line(
        ", ".join([*parts, *filter(None, [series_label])]), number, index, counts,
        np.array([sample.mean for sample in samples]), np.array([sample.ci95 for sample in samples]),
    )  # fmt: skip


def _sample(repeats: pd.DataFrame, column: str) -> Sample:
    """The mean of a point's successful repeats; measured and modelled power have none."""
    return summarize(repeats[column] if column in repeats and not has_no_mean(repeats, column) else [])


def _failed(number: int, group: pd.DataFrame) -> Iterator[Failed]:
    for count, repeats in group.groupby("gpus"):
        if not (repeats["status"] == "ok").any():
            yield Failed(number, int(count), tuple(sorted(repeats["failure_kind"].dropna().unique())))


def _published(panel: dict[str, Any], series: list[tuple[Any, ...]], description: Description) -> Iterator[Published]:
    """The published points of a panel, one `Published` per series and machine.

    series: the values of each measured series, which begin with those of the panel's ``by``.
    """
    new, used = itertools.count(len(series)), set()
    named = [dict(zip(panel["by"], values, strict=False)) for values in series]
    for entry in panel.get("published", []):
        rows = _published_rows(entry, description)
        by = [column for column in panel["by"] if column in rows and rows[column].notna().all()]
        for (machine, *values), points in rows.groupby(["machine", *by], sort=False):
            same = [number for number, known in enumerate(named) if by and [known[name] for name in by] == values]
            free = [number for number in same if number not in used]  # another machine's points need their own marker
            number = free[0] if free else next(new)
            used.add(number)
            label = ": ".join(
                [f"paper, {machine.capitalize()}", *filter(None, [_label(values, by, description.labels)])]
            )
            yield Published(label, number, points["gpus"].to_numpy(dtype=int), points[entry["y"]].to_numpy(dtype=float))


def _published_rows(entry: dict[str, Any], description: Description) -> pd.DataFrame:
    """The rows of a published CSV that an entry of a panel selects."""
    where = f"figure {description.name}: published: {entry['file']}"
    known = sorted(path.name for path in CONFIG.glob("papers/*/*.csv"))
    if entry["file"] not in known:
        raise StudyError(f"{where}: there is no such file in config/papers; known files: {', '.join(known)}")
    rows = published(entry["file"]).assign(**entry.get("set", {}))
    missing = [column for column in ("gpus", entry["y"], *entry.get("where", {})) if column not in rows]
    if missing:
        raise StudyError(f"{where}: there is no column '{missing[0]}'; the file has: {', '.join(rows)}")
    for column, value in entry.get("where", {}).items():
        rows = rows[rows[column].isin(several(value))]
    rows = rows.dropna(subset=["gpus", entry["y"]]).sort_values("gpus")
    if rows.empty:
        raise StudyError(f"{where}: no row fits {entry.get('where', {})}")
    return rows


def _reason(panel: dict[str, Any], rows: pd.DataFrame) -> str:
    """Why a panel has no line: the runs' reason for missing power, or that no run measured it."""
    if set(panel["quantities"]) <= set(OF_POWER):
        reasons = [*rows["power_reason"].dropna().unique(), *([NO_MEAN] if rows["power_source"].nunique() > 1 else [])]
        return "; ".join(reasons) or NOT_MEASURED
    return NOT_MEASURED
