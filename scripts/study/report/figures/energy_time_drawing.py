"""Draw energy against time: a panel for each benchmark, its points with intervals, and the Pareto front."""

import textwrap
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.core.errors import StudyError
from study.core.wording import format_count
from study.experiment.parameters import PARAMETERS
from study.report.figures import style
from study.report.figures.description import Description, get_benchmark_title
from study.report.figures.table_panels import TablePanels
from study.report.tables.energy import FRONT, WORK, energy_time, group_equal_work
from study.report.tables.layout import ci95_name
from study.report.tables.summary import IDENTITY

# Of `WORK`, those that have no own place in a panel's title.
IN_TITLES = ("sharding", "program_parameters", "members")
COLUMNS = 2
WIDTH, AXES, LINE = 1.4 * style.PANEL_WIDTH, 2.9, 0.13  # inches: of a panel, its height without the list, a line of it
CHARACTERS = 72  # of a line of the list
IN_TITLE = 40  # of a key and its value in a panel's title
DEFAULTS = "all at their defaults"
X, Y = "energy_window_s", "energy_job_j"


def select(description: Description, runs: pd.DataFrame, study: str) -> TablePanels:
    """Select the points of each panel, one panel per equal work; raises `StudyError` if no point has an energy."""
    frame = energy_time(runs, pd.DataFrame()).frame
    frame = frame[frame[Y].notna() & frame[X].notna()]
    if frame.empty:
        raise StudyError(f"{description.name}: no run of study {study} has an energy; see column power_reason")
    panels = []
    for ranks, rows in group_equal_work(frame):
        first = rows.iloc[0]
        alike = frame[frame["benchmark"].eq(first["benchmark"]) & frame["scaling"].eq(first["scaling"])]
        parts = [get_benchmark_title(str(first["benchmark"]), description.labels), f"{first['scaling']} scaling"]
        parts += [str(first["dataset"])] if alike["dataset"].nunique() > 1 else []
        parts += [format_count(first["epochs"], "epoch")] if alike["epochs"].nunique() > 1 else []
        parts += [format_count(ranks, "rank")] if ranks else []
        parts += [format_count(int(first["ensemble"]), "member")] if first["ensemble"] > 1 else []
        parts += [_shorten(_describe_key(name, first[name])) for name in IN_TITLES if alike[name].nunique() > 1]
        parts += ["modelled energy"] if first["power_source"] == "modelled" else []
        panels.append((", ".join(filter(None, parts)), rows.assign(point=_name_points(rows))))
    subtitle = f"study {study}, machine {', '.join(frame['machine'].unique())}"
    return TablePanels.from_description(description, subtitle, panels)


def _shorten(text: str) -> str:
    """Shorten a text to fit into a title: a list of members may be long."""
    return text if len(text) <= IN_TITLE else f"{text[: IN_TITLE - 3]}..."


def _name_points(rows: pd.DataFrame) -> list[str]:
    """Name each point by the keys in which it differs from others of its panel, without defaults."""
    differing = [name for name in IDENTITY if name not in WORK and rows[name].nunique(dropna=False) > 1]
    names = differing or ["gpus"]
    return [", ".join(filter(None, (_describe_key(name, row[name]) for name in names))) or DEFAULTS
            for row in rows.to_dict("records")]  # fmt: skip


def _describe_key(name: str, value: Any) -> str:
    """Describe a grid key and its value in words; empty at the key's default."""
    if name == "gpus":
        return format_count(value, "rank")
    if name not in PARAMETERS:
        return str(value)
    key = PARAMETERS[name]
    if key.has_default and value == key.default:
        return ""
    number = f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return f"{key.words} {number} {key.unit or ''}".strip()


def draw(data: TablePanels) -> Figure:
    """Draw the Matplotlib figure: a panel for each work, as of `study.report.tables.energy.group_equal_work`.

    Points have numbers, in the order of their times, and a list below their panel: names would lie on one another.
    """
    with matplotlib.rc_context(style.RC):
        columns = min(COLUMNS, len(data.panels))
        lists = [_number_points(points) for _, points in data.panels]
        lines = [max(each.count("\n") + 1 for each in lists[at : at + columns]) for at in range(0, len(lists), columns)]
        heights = [AXES + LINE * number for number in lines]
        figure = Figure(figsize=(columns * WIDTH, sum(heights) + 0.6), layout="constrained")
        figure.suptitle("\n".join([data.title, *textwrap.wrap(data.subtitle, 60 * columns)]))
        grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
        for index, ((title, points), listed) in enumerate(zip(data.panels, lists, strict=True)):
            _draw_panel(figure.add_subplot(grid[divmod(index, columns)]), title, points, listed)
        return figure


def _number_points(points: pd.DataFrame) -> str:
    """List the points' numbers with their names, a line each, long ones wrapped."""
    entries = (f"{number}  {name}" for number, name in enumerate(points.sort_values(X)["point"], 1))
    return "\n".join(line for entry in entries for line in textwrap.wrap(entry, CHARACTERS, subsequent_indent="    "))


def _draw_panel(axes: Axes, title: str, points: pd.DataFrame, listed: str) -> None:
    """Draw a panel's numbered points with intervals, the Pareto front, and the list of their names."""
    axes.set_title(title, loc="left")
    points = points.sort_values(X).assign(number=range(1, len(points) + 1))
    is_front = points[FRONT].astype(bool)
    for rows, colour, label in (
        (points[~is_front], style.GREY, "beaten"),
        (points[is_front], style.COLOURS[0], "Pareto front"),
    ):
        if rows.empty:
            continue
        spread = [pd.to_numeric(rows[ci95_name(name)]).fillna(0).to_numpy(float) for name in (X, Y)]
        on_front = label == "Pareto front"
        # In steps: nothing was measured between two points; the corner is what both together reach.
        axes.errorbar(
            rows[X].to_numpy(float), rows[Y].to_numpy(float), xerr=spread[0], yerr=spread[1], color=colour, marker="o",
            markersize=4.5, linestyle="-" if on_front else "none", drawstyle="steps-post" if on_front else "default",
            linewidth=0.8, elinewidth=0.6, label=label,
        )  # fmt: skip
        for row in rows.to_dict("records"):  # the front is below and left of all others
            place, side, height = ((-4, -3), "right", "top") if on_front else ((4, 3), "left", "bottom")
            axes.annotate(str(row["number"]), (row[X], row[Y]), place, textcoords="offset points", ha=side, va=height,
                          fontsize=style.SMALL, color=colour)  # fmt: skip
    axes.margins(0.15)
    axes.set_xlabel(f"time from load to evaluate (s)\n\n{listed}", loc="left")
    axes.set_ylabel("energy of the job (J)")
    axes.grid()
    axes.legend(frameon=False)
