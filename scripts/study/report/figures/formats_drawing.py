"""Draw the cost of formats, one mark per format and file, from the loading measurements."""

import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.core.errors import StudyError
from study.report.figures import style
from study.report.figures.description import Description
from study.report.figures.table_panels import TablePanels
from study.report.tables.formats import formats

COLUMNS = 2
HEIGHT = 4.6  # inches, of the whole figure
SPREAD = 0.5  # of the marks of a format, as part of the distance between formats


@dataclass(frozen=True)
class Quantity:
    """The quantity of one panel. compute: from a row of the table of formats to its value."""

    title: str
    label: str
    compute: Callable[[Any], float]
    is_log: bool = False


QUANTITIES = (
    Quantity("Loading", "MB of the matrix per second", lambda row: row.matrix_mb / row.load_s, True),
    Quantity("Writing", "MB of the matrix per second", lambda row: row.matrix_mb / row.store_s, True),
    Quantity("Size of the file", "share of the matrix", lambda row: row.stored_mb / row.matrix_mb),
    Quantity("Memory that loading adds", "times the matrix", lambda row: row.added_memory_mb / row.matrix_mb),
)


def select(description: Description, loading: pd.DataFrame, study: str) -> TablePanels:
    """Select each benchmark's largest file, loaded from a warm page cache; raises `StudyError` if there is none."""
    table = formats(pd.DataFrame(), loading[loading["page_cache"] == "warm"]).frame
    table = table[table["repeats_ok"] > 0]
    if table.empty:
        raise StudyError(f"{description.name}: no format was loaded from a warm page cache in study {study}")
    largest = table.groupby("benchmark")["matrix_mb"].transform("max")
    largest_files = table[table["matrix_mb"] == largest].drop_duplicates(["benchmark", "format"])
    machine = ", ".join(largest_files["machine"].unique())
    return TablePanels.from_description(description, f"{machine}, study {study}", [("", largest_files)])


def draw(data: TablePanels) -> Figure:
    """Draw the Matplotlib figure: one panel per quantity, formats stacked, one legend for all."""
    ((_, frame),) = data.panels
    names = list(dict.fromkeys(frame["format"]))
    figure = Figure(figsize=(COLUMNS * style.PANEL_WIDTH, HEIGHT), layout="constrained")
    figure.suptitle(f"{data.title}\n{data.subtitle}")
    panels = figure.subplots(-(-len(QUANTITIES) // COLUMNS), COLUMNS, sharey=True).ravel()
    for letter, axes, quantity in zip(string.ascii_lowercase, panels, QUANTITIES, strict=False):
        _draw_panel(axes, quantity, frame, names)
        axes.set_title(f"({letter}) {quantity.title}")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_panel(axes: Axes, quantity: Quantity, frame: pd.DataFrame, names: list[str]) -> None:
    """Draw a quantity of every format, one series of marks per file."""
    files = list(frame.groupby(["benchmark", "file"], sort=False))
    for index, ((benchmark, file), rows) in enumerate(files):
        offset = SPREAD * (index / max(1, len(files) - 1) - 0.5) if len(files) > 1 else 0
        places = [names.index(name) + offset for name in rows["format"]]
        values = [quantity.compute(row) for row in rows.itertuples()]
        size = f"{rows['rows'].iloc[0]:,} x {rows['columns'].iloc[0]:,}"
        look: dict[str, Any] = {
            "color": style.COLOURS[index % len(style.COLOURS)],
            "marker": style.MARKERS[index % len(style.MARKERS)],
        }
        axes.plot(values, places, linestyle="none", markersize=4.5, label=f"{benchmark} {file}, {size}", **look)
    axes.set_xlabel(quantity.label)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x")
    if quantity.is_log:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
