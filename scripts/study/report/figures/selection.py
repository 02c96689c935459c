"""The data of a figure: selected runs, averages over repeats, published values. Nothing here draws."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from study.compare import estimates, failed_runs, likeness
from study.core.errors import StudyError
from study.core.statistics import compute_spread_pct, summarize
from study.experiment import programs
from study.experiment.parameters import list_observing_keys
from study.records.power import NO_MEAN, OF_POWER, has_no_mean, name_reason_column, note_modelled_power
from study.report.figures.description import Description, Labels, describe_filters, is_drawn, list_identifying_columns
from study.report.figures.published_points import select_published_rows
from study.report.tables.kinds import select_runs
from study.report.tables.summary import POINT, count_kinds

NOT_MEASURED = "no run of this study has it"


@dataclass(frozen=True)
class Line:
    """One quantity of one series: arrays of equal length, NaN where a point has no value or no interval."""

    label: str
    series: int  # counted from 0 among the panel's series, as in the other classes
    quantity: int  # counted from 0 among the panel's quantities
    x: NDArray[np.int64]  # places on the horizontal axis
    mean: NDArray[np.float64]
    ci95: NDArray[np.float64]  # half-width; two rows, below and above the mean, where they differ


@dataclass(frozen=True)
class FailedPoint:
    """A point of one series whose repeats all failed, with the kinds of failure."""

    series: int
    x: int
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class PublishedPoints:
    """Published points; ``series`` is the measured series that they belong to, or their own number."""

    label: str
    series: int
    x: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """The content of one panel; ``reason`` says why nothing is measured, None if there is a line."""

    title: str
    y_label: str
    y_scale: str
    series: int  # how many there are
    lines: tuple[Line, ...]
    failed: tuple[FailedPoint, ...]
    published: tuple[PublishedPoints, ...]
    places: tuple[int, ...]  # every place on the horizontal axis that the panel has, ascending
    reason: str | None
    x_label: str
    names: tuple[str, ...] = ()  # of all places from 0, if they are no numbers
    signed: bool = False  # its values are differences from 0


@dataclass(frozen=True)
class FigureData:
    """Everything that is drawn, and the texts."""

    name: str
    title: str
    subtitle: str
    notes: tuple[str, ...]
    caption: str
    panels: tuple[Panel, ...]


def select_points(description: Description, runs: pd.DataFrame, study: str) -> FigureData:
    """Select and average the runs that a figure of points draws: its `FigureData`.

    runs: the tidy table of runs. study: its name. Raises `StudyError` if no run belongs in the figure.
    """
    rows = _select_runs(description, runs)
    panels = tuple(_make_panel(panel, rows, description) for panel in description.panels)
    return FigureData(
        description.name,
        description.title,
        _make_subtitle(rows, study),
        _write_notes(rows),
        description.caption,
        panels,
    )


def _select_runs(description: Description, runs: pd.DataFrame) -> pd.DataFrame:
    """Select the rows that belong in the figure; raises `StudyError` if there is none."""
    rows = select_runs(runs, partial(is_drawn, description))
    if rows.empty:
        raise StudyError(f"figure {description.name} needs runs{describe_filters(description)}; the study has none")
    for column in description.smallest:
        rows = rows[rows[column] == rows[column].min()]
    return rows


def _make_subtitle(rows: pd.DataFrame, study: str) -> str:
    """Name the study, machine, benchmark and dataset, or how many there are."""
    columns = ("machine", "benchmark", "dataset")
    distinct = {column: values for column in columns if (values := programs.list_given_values(rows[column].unique()))}
    texts = {name: values[0] if len(values) == 1 else f"{len(values)} different" for name, values in distinct.items()}
    return ", ".join([f"study {study}", *(f"{column} {text}" for column, text in texts.items())])


def _write_notes(rows: pd.DataFrame) -> tuple[str, ...]:
    """Write the notes on the runs that a reader of the figure needs: oversubscription, failures, power, code."""
    notes = []
    crowded = sorted(rows.loc[rows["oversubscribed"].astype(bool), "gpus"].unique())
    if crowded:
        notes.append(f"oversubscribed (ranks had fewer cores than they should): {', '.join(map(str, crowded))} ranks")
    at_point = rows["status"].eq("ok").groupby([rows[name] for name in POINT if name in rows], dropna=False)
    survivors = rows[at_point.transform("any") & rows["status"].ne("ok")]
    if len(survivors):
        ranks = ", ".join(map(str, sorted(survivors["gpus"].unique())))
        notes.append(f"failed repeats are in no mean: {len(survivors)} ({count_kinds(survivors['failure_kind'])}), "
                     f"{ranks} ranks")  # fmt: skip
    if unproven := failed_runs.describe_unproven(rows):
        notes.append(f"not shown: {unproven}")
    notes += note_modelled_power(rows["power_source"])
    if not rows["code_is_current"].astype(bool).all():
        notes.append("some runs are of another version of the code")
    if likeness.has_differences(rows):
        of_points = failed_runs.keep_proven(rows).groupby([name for name in POINT if name in rows], dropna=False)
        if reasons := dict.fromkeys(filter(None, (likeness.describe_difference(repeats) for _, repeats in of_points))):
            notes.append(f"some points are means over repeats that are not alike: {', '.join(reasons)}")
    return tuple(notes)


def _make_panel(panel: dict[str, Any], rows: pd.DataFrame, description: Description) -> Panel:
    """Make a panel: split the rows into series, and average each at every place."""
    # A line must not mix different experiments: any other difference between the runs splits the lines too.
    x = description.x.column
    identifying = ("memory_mode", "gpus", *list_identifying_columns(), *list_observing_keys())
    apart = [column for column in identifying if column not in (x, *description.together)]
    others = [column for column in apart if column in rows and column not in panel["by"]]
    differing = [column for column in others if rows[column].nunique(dropna=False) > 1]
    by = [*panel["by"], *differing]
    by += _find_mixed_columns(rows, by, panel, description)
    series = _split_series(_drop_baseline(panel, rows), by, description.labels)
    places = _assign_places(description, rows)
    all_lines = [
        _make_line(
            group,
            column,
            (number, _make_label(values, by, description.labels)),
            (index, text),
            panel,
            (x, places, rows),
        )
        for index, (column, text) in enumerate(panel["quantities"].items())
        for number, (values, group) in enumerate(series)
    ]
    lines = tuple(line for line in all_lines if np.isfinite(line.mean).any())
    failed = tuple(
        point for number, (_, group) in enumerate(series) for point in _find_failed(number, group, x, places)
    )
    published = tuple(_select_published(panel, [values for values, _ in series], description, places))
    all_places = sorted({*places.values(), *itertools.chain.from_iterable(points.x for points in published)})
    labels = description.labels.get(x, {})
    names = tuple(labels.get(str(value), str(value)) for value in places) if description.x.names else ()
    return Panel(
        panel["title"], panel["y_label"], panel["y_scale"], len(series), lines, failed, published,
        tuple(map(int, all_places)), None if lines else _explain_empty_panel(panel, rows), description.x.label, names,
        panel.get("value") == "change_pct",
    )  # fmt: skip


def _find_mixed_columns(
    rows: pd.DataFrame, by: list[str], panel: dict[str, Any], description: Description
) -> list[str]:
    """Find the columns of ``together`` in which measured runs at one place of a line differ: they split the line."""
    ok = failed_runs.keep_proven(rows)
    measured = ok[ok[[column for column in panel["quantities"] if column in ok]].notna().any(axis=1)]
    place = list(dict.fromkeys([description.x.column, *by]))
    at_place = measured.groupby(place, dropna=False)
    candidates = [column for column in description.together if column in rows and column not in place]
    return [column for column in candidates if at_place[column].nunique(dropna=False).gt(1).any()]


def _drop_baseline(panel: dict[str, Any], rows: pd.DataFrame) -> pd.DataFrame:
    """Drop the baseline's rows, whose every point would be compared with itself."""
    base = panel.get("relative_to", {})
    compared = {column: value for column, value in base.items() if column in panel["by"]}
    is_base = np.logical_and.reduce([rows[column] == value for column, value in compared.items()] or [False])
    return rows[~is_base] if compared else rows


def _assign_places(description: Description, rows: pd.DataFrame) -> dict[Any, int]:
    """Assign each value its place on the horizontal axis: a number is its own, names are counted as runs list them."""
    column = description.x.column
    if not description.x.names:
        return {value: int(value) for value in sorted(rows[column].unique())}
    order = description.runs.get(column, [])
    values = sorted(rows[column].unique(), key=lambda value: (order.index(value) if value in order else 0, str(value)))
    return {value: place for place, value in enumerate(dict.fromkeys([*order, *values]))}


def _split_series(rows: pd.DataFrame, by: list[str], labels: Labels) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Split rows into series, (values of ``by``, rows) each, ordered as the labels are, else by value."""
    if not by:
        return [((), rows)]
    groups = [(values, group) for values, group in rows.groupby(by, dropna=False, sort=False)]
    return sorted(groups, key=lambda group: [_make_sort_key(*pair, labels) for pair in zip(by, group[0], strict=True)])


def _make_sort_key(column: str, value: Any, labels: Labels) -> tuple[int, Any]:
    """Make the key that sorts a column's values as its labels are ordered; those without a label are last."""
    labelled = list(labels.get(column, {}))
    return labelled.index(str(value)) if str(value) in labelled else len(labelled), value


def _make_label(values: Iterable[Any], by: Iterable[str], labels: Labels) -> str:
    """Make the legend text of a series from its values of the columns ``by``."""
    pairs = zip(by, values, strict=True)
    return ", ".join(labels.get(name, {}).get(str(value), f"{name.replace('_', ' ')} {value}") for name, value in pairs)


def _make_line(
    group: pd.DataFrame,
    column: str,
    series: tuple[int, str],
    quantity: tuple[int, str],
    panel: dict[str, Any],
    axis: tuple[str, dict[Any, int], pd.DataFrame],
) -> Line:
    """Make the line of one quantity of one series.

    series, quantity: (number, label). axis: the column of the horizontal axis, its places, all runs of the figure.
    """
    (number, series_label), (index, quantity_label), (x, places, rows) = series, quantity, axis
    xs = sorted(group[x].unique(), key=lambda value: places[value])
    values = [_compute_value(group[group[x] == value], column, panel, rows) for value in xs]
    parts = [quantity_label] if len(panel["quantities"]) > 1 or not series_label else []
    below, above = np.array([ends for _, *ends in values]).T
    return Line(
        ", ".join([*parts, *filter(None, [series_label])]), number, index, np.array([places[value] for value in xs]),
        np.array([middle for middle, *_ in values]),
        below if np.array_equal(below, above, equal_nan=True) else np.array([below, above]),
    )  # fmt: skip


def _compute_value(
    point: pd.DataFrame, column: str, panel: dict[str, Any], rows: pd.DataFrame
) -> tuple[float, float, float]:
    """Compute a point's value, and how far its 95 % interval extends below and above; NaN without one.

    Measured and modelled power are never taken together.
    """
    ok = failed_runs.keep_proven(point)
    has_values = column in ok and not has_no_mean(ok, column)
    values = ok[column] if has_values else pd.Series(np.nan, index=ok.index)
    kind = panel.get("value", "mean")
    if kind == "mean":
        sample = summarize(values)
        return sample.mean, sample.ci95, sample.ci95
    if kind == "spread_pct":
        return compute_spread_pct(values), np.nan, np.nan
    ratio = _compute_ratio(ok, column, panel["relative_to"], rows)
    ends = np.array(ratio.numbers)
    middle, low, high = ends if kind == "ratio" else 100 * (ends - 1)
    return float(middle), float(middle - low), float(high - middle)


def _compute_ratio(point: pd.DataFrame, column: str, base: dict[str, Any], rows: pd.DataFrame) -> estimates.Estimate:
    """Estimate the ratio of a point to the runs that differ from it in the values of ``base``, paired by block."""
    if column not in rows or point.empty:
        return estimates.Estimate()
    identifying = ("machine", "memory_mode", "gpus", *list_identifying_columns(), *list_observing_keys())
    same = [name for name in identifying if name in rows and name not in base]
    first = point.iloc[0]
    wanted = {name: first[name] for name in same} | base
    base_runs = rows[np.logical_and.reduce([rows[name] == value for name, value in wanted.items()])]
    if has_no_mean(pd.concat([point, failed_runs.keep_proven(base_runs)]), column):
        return estimates.Estimate()
    if set(point.index) & set(base_runs.index):
        return estimates.Estimate(1.0, blocks=len(point))
    return estimates.estimate_ratio(point, base_runs, column)


def _find_failed(number: int, group: pd.DataFrame, x: str, places: dict[Any, int]) -> Iterator[FailedPoint]:
    """Yield each point of a series of which no repeat succeeded and is proven."""
    for value, repeats in group.groupby(x):
        if failed_runs.keep_proven(repeats).empty:
            kinds = sorted(repeats["failure_kind"].dropna().unique())
            kinds += ["unproven"] if failed_runs.mark_unproven(repeats).any() else []
            yield FailedPoint(number, places[value], tuple(kinds))


def _select_published(
    panel: dict[str, Any], series: list[tuple[Any, ...]], description: Description, places: dict[Any, int]
) -> Iterator[PublishedPoints]:
    """Yield the published points of a panel, one `PublishedPoints` per series and machine.

    series: the values of each measured series, which begin with those of the panel's ``by``. places: of names on the
    horizontal axis; points of other names are left out.
    """
    new, used = itertools.count(len(series)), set()
    named = [dict(zip(panel["by"], values, strict=False)) for values in series]
    x = description.x
    for entry in panel.get("published", []):
        rows = select_published_rows(entry, description)
        rows = rows[rows[x.column].isin(places)] if x.names else rows
        by = [column for column in panel["by"] if column in rows and rows[column].notna().all()]
        for (machine, *values), points in rows.groupby(["machine", *by], sort=False):
            same = [number for number, key in enumerate(named) if by and [key[name] for name in by] == values]
            free = [number for number in same if number not in used]  # another machine's points need their own marker
            number = free[0] if free else next(new)
            used.add(number)
            label = ": ".join(
                [
                    f"paper, {machine.capitalize()}",
                    *filter(None, [_make_label(values, by, description.labels), entry.get("label")]),
                ]  # fmt: skip
            )
            x_places = [places[value] if x.names else int(value) for value in points[x.column]]
            yield PublishedPoints(label, number, np.array(x_places), points[entry["y"]].to_numpy(dtype=float))


def _explain_empty_panel(panel: dict[str, Any], rows: pd.DataFrame) -> str:
    """Say why a panel has no line: the runs' reason for missing power, or that no run measured it."""
    if set(panel["quantities"]) <= set(OF_POWER):
        columns = dict.fromkeys(map(name_reason_column, panel["quantities"]))
        reasons = [reason for name in columns for reason in rows[name].dropna().unique()]
        reasons += [NO_MEAN] if rows["power_source"].nunique() > 1 else []
        return "; ".join(reasons) or NOT_MEASURED
    return NOT_MEASURED
