"""Draw energy against time: a panel for each benchmark, its points with intervals, and the Pareto front."""

import math
import textwrap
from dataclasses import dataclass

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.core.errors import StudyError
from study.core.files import AnyPath
from study.experiment.parameters import PARAMETERS
from study.report.figures import style
from study.report.figures.description import Description, benchmark_title
from study.report.figures.drawing import save
from study.report.tables.energy_time import FRONT, WORK, energy_time
from study.report.tables.layout import ci95_name
from study.report.tables.summary import IDENTITY

COLUMNS = 2
X, Y = "energy_window_s", "energy_job_j"


@dataclass(frozen=True)
class EnergyTimeData:
    """The figure's data. panels: (title, rows of the table ``energy_time`` with a column ``point``) of each work."""

    name: str
    title: str
    caption: str
    subtitle: str
    panels: list[tuple[str, pd.DataFrame]]


def select(description: Description, runs: pd.DataFrame, study: str) -> EnergyTimeData:
    """The `EnergyTimeData` of a figure; raises `StudyError` if no point has an energy."""
    frame = energy_time(runs, pd.DataFrame()).frame
    frame = frame[frame[Y].notna() & frame[X].notna()]
    if frame.empty:
        raise StudyError(f"{description.name}: no run of study {study} has an energy; see column power_reason")
    panels = []
    for key, rows in frame.groupby(WORK, sort=False, dropna=False):
        of = dict(zip(WORK, key, strict=True))
        modelled = ", modelled energy" if of["power_source"] == "modelled" else ""
        title = f"{benchmark_title(str(of['benchmark']), description.labels)}, {of['scaling']} scaling{modelled}"
        panels.append((title, rows.assign(point=_named(rows))))
    subtitle = f"study {study}, machine {', '.join(frame['machine'].unique())}"
    return EnergyTimeData(description.name, description.title, description.caption, subtitle, panels)


def _named(rows: pd.DataFrame) -> list[str]:
    """What tells each point from the others of its panel; the number of ranks if nothing does."""
    differing = [name for name in IDENTITY if name not in WORK and rows[name].nunique(dropna=False) > 1] or ["gpus"]
    return [", ".join(_told(name, row[name]) for name in differing) for row in rows.to_dict("records")]


def _told(name: str, value: object) -> str:
    if name not in PARAMETERS:
        return str(value)
    key = PARAMETERS[name]
    if key.has_default and value == key.default:
        return f"{key.words}: default"
    return f"{key.words} {value:g} {key.unit or ''}".strip() if isinstance(value, (int, float)) else str(value)


def write(data: EnergyTimeData, svg: AnyPath, pdf: AnyPath) -> None:
    """Draw a figure and write both files, whole or not at all."""
    with matplotlib.rc_context(style.RC):
        save(draw(data), data, svg, pdf)


def draw(data: EnergyTimeData) -> Figure:
    """The Matplotlib figure: a panel for each benchmark, dataset, scaling mode and number of epochs."""
    with matplotlib.rc_context(style.RC):
        columns = min(COLUMNS, len(data.panels))
        rows = math.ceil(len(data.panels) / columns)
        size = (columns * style.PANEL_WIDTH * 1.4, rows * style.PANEL_WIDTH + 0.6)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle("\n".join([data.title, *textwrap.wrap(data.subtitle, 60 * columns)]))
        for index, (title, points) in enumerate(data.panels):
            _draw_panel(figure.add_subplot(rows, columns, index + 1), title, points)
        return figure


def _draw_panel(axes: Axes, title: str, points: pd.DataFrame) -> None:
    axes.set_title(title, loc="left")
    is_front = points[FRONT].astype(bool)
    for rows, colour, label in (
        (points[~is_front], style.GREY, "other points"),
        (points[is_front].sort_values(X), style.COLOURS[0], "Pareto front"),
    ):
        if rows.empty:
            continue
        spread = [pd.to_numeric(rows[ci95_name(name)]).fillna(0).to_numpy(float) for name in (X, Y)]
        line = "-" if label == "Pareto front" else "none"
        axes.errorbar(
            rows[X].to_numpy(float), rows[Y].to_numpy(float), xerr=spread[0], yerr=spread[1], color=colour, marker="o",
            markersize=4.5, linestyle=line, linewidth=0.8, elinewidth=0.6, label=label,
        )  # fmt: skip
    for row in points.to_dict("records"):
        axes.annotate(row["point"], (row[X], row[Y]), (4, 4), textcoords="offset points", fontsize=style.SMALL)
    axes.margins(0.15)
    axes.set_xlabel("time from load to evaluate (s)")
    axes.set_ylabel("energy of the job (J)")
    axes.grid()
    axes.legend(frameon=False)
