"""Draw the data of a figure and write it as SVG and PDF, with Matplotlib's object API and without global state."""

import math
import string
import textwrap
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.transforms import offset_copy

from study.core.files import AnyPath, write_with_checksum
from study.report.figures import style
from study.report.figures.selection import FigureData, Line, Panel, select_points
from study.report.figures.style import set_gpu_axis, set_name_axis, set_value_axis

COLUMNS = 2
LEGEND_ROW = 0.14  # inches, as all lengths here
LEGEND_HANDLE = 0.5  # a handle with the space around it
BELOW_AXES = 0.38  # tick labels and axis label, under which the legend begins
AROUND_AXES = 0.7  # tick labels, axis label and title of a panel, in height
TITLE_LINE = 0.15
BETWEEN_PANELS = 0.05  # as part of a panel's width
FAILED_AT = 0.04  # height of a failed point's mark, and of each further one above it, as part of the axes
FAILED_STEP = 0.07
REASON_CHARACTERS = 48
HEADING_CHARACTERS = 56  # above a panel
ABOVE_LINES = 4
OFFSET_BESIDE = 0.14  # between the marks of two series at one name, as part of the distance between names

select = select_points  # as in each module that draws a kind of figure


def write_figure(draw: Callable[[Any], Figure], data: Any, svg: AnyPath, pdf: AnyPath) -> None:
    """Draw a figure and write both files, whole or not at all; the same data give the same bytes.

    draw: from the data to the figure. data: with the figure's name, title and caption.
    """
    title = f"{data.name}: {data.title}"
    with (
        matplotlib.rc_context(style.RC),
        write_with_checksum(svg) as svg_aside,
        write_with_checksum(pdf) as pdf_aside,
    ):
        figure = draw(data)
        figure.savefig(svg_aside, format="svg", metadata={"Date": None, "Title": title, "Description": data.caption})
        figure.savefig(
            pdf_aside, format="pdf", metadata={"CreationDate": None, "Title": title, "Subject": data.caption}
        )


def draw(data: FigureData) -> Figure:
    """Draw the Matplotlib figure: panels side by side, two in a row, each with its legend below."""
    with matplotlib.rc_context(style.RC):
        columns = min(COLUMNS, len(data.panels))
        room = int(columns * HEADING_CHARACTERS)
        has_bars = any(_has_interval(line) for each in data.panels for line in each.lines)
        texts = (data.title, data.subtitle, *data.notes, "bars: 95 % intervals" if has_bars else "")
        heading = [line for text in texts for line in textwrap.wrap(text, room)]
        rows = math.ceil(len(data.panels) / columns)
        legend_rows = [_compute_legend_shape(_make_legend_entries(panel))[0] for panel in data.panels]
        height = rows * (style.AXES_HEIGHT + AROUND_AXES) + len(heading) * TITLE_LINE
        for row in range(rows):
            height += max(legend_rows[row * columns : (row + 1) * columns]) * LEGEND_ROW
        layout = ConstrainedLayoutEngine(wspace=BETWEEN_PANELS)
        figure = Figure(figsize=(columns * style.PANEL_WIDTH, height), layout=layout)
        figure.suptitle("\n".join(heading))
        grid = figure.add_gridspec(rows, columns)
        for index, panel in enumerate(data.panels):
            _draw_panel(figure.add_subplot(grid[divmod(index, columns)]), panel, string.ascii_lowercase[index])
        return figure


def _has_interval(line: Line) -> bool:
    """True if a point of the line has an interval."""
    return bool(np.isfinite(line.ci95).any())


def _draw_panel(axes: Axes, panel: Panel, letter: str) -> None:
    """Draw a panel: published points, lines, failed points, and its legend."""
    axes.set_title(f"({letter}) {panel.title}")
    axes.set_ylabel(panel.y_label)
    axes.grid(axis="y")
    if panel.names:
        set_name_axis(axes, panel.names, panel.x_label)
    else:
        set_gpu_axis(axes, list(panel.places), panel.x_label)
    for points in panel.published:
        offset = _compute_offset(points.series, panel)
        axes.plot(points.x + offset, points.values, zorder=ABOVE_LINES, **style.make_published_style(points.series))
    for line in panel.lines:
        _draw_line(axes, line, panel)
    _set_value_axis(axes, panel)
    _draw_failed(axes, panel)
    if panel.reason:
        _write_reason(axes, panel)
    _draw_legend(axes, panel)


def _draw_line(axes: Axes, line: Line, panel: Panel) -> None:
    """Draw the line of a series, with its intervals."""
    axes.errorbar(
        line.x + _compute_offset(line.series, panel), line.mean, yerr=line.ci95 if _has_interval(line) else None,
        capsize=2, elinewidth=0.8, zorder=3, **_choose_line_style(line, panel),
    )  # fmt: skip


def _compute_offset(series: int, panel: Panel) -> float:
    """Compute how far the marks of a series stand beside a name, so that they do not cover each other."""
    return OFFSET_BESIDE * (series % panel.series - (panel.series - 1) / 2) if panel.names and panel.series else 0.0


def _choose_line_style(line: Line, panel: Panel) -> dict[str, Any]:
    """Choose the style of a line; between names there is nothing, so marks stand alone."""
    return style.make_line_style(line.series, line.quantity, panel.series) | (
        {"linestyle": "none"} if panel.names else {}
    )


def _draw_failed(axes: Axes, panel: Panel) -> None:
    """Draw an x at the bottom edge for each point whose repeats all failed; several at one place are stacked."""
    heights: dict[int, int] = {}
    for point in panel.failed:
        above = heights[point.x] = heights.get(point.x, -1) + 1
        axes.plot(
            [point.x], [FAILED_AT + above * FAILED_STEP], transform=axes.get_xaxis_transform(), zorder=ABOVE_LINES,
            **_make_failed_style(style.COLOURS[point.series % len(style.COLOURS)]),
        )  # fmt: skip
    if heights and axes.get_yscale() == "log":  # a linear axis keeps its zero
        _make_room(axes, below=FAILED_AT + (1 + max(heights.values())) * FAILED_STEP)


def _make_failed_style(colour: str) -> dict[str, Any]:
    """Make the style of a failed point's mark."""
    return {"color": colour, "linestyle": "none", "marker": "x", "markersize": 5, "markeredgewidth": 1.4}


def _set_value_axis(axes: Axes, panel: Panel) -> None:
    """Set a y axis for all values with their intervals; no ticks if there are no values."""
    means = [*(line.mean for line in panel.lines), *(points.values for points in panel.published)]
    if not means:
        axes.set_yticks([])
        return
    ends = [np.broadcast_to(np.nan_to_num(line.ci95), (2, len(line.mean))) for line in panel.lines]
    ends += [np.zeros((2, len(points.values))) for points in panel.published]
    mean, (below, above) = np.concatenate(means), np.concatenate(ends, axis=1)
    set_value_axis(axes, panel.y_scale, mean - below, mean + above, panel.signed)


def _write_reason(axes: Axes, panel: Panel) -> None:
    """Write why nothing is measured: in the middle of an empty panel, or above the published points."""
    text = textwrap.fill(f"not measured: {panel.reason}", REASON_CHARACTERS)
    place: dict[str, Any] = {"y": 0.5, "va": "center"}
    if panel.published:
        place = {"y": 0.99, "va": "top"}
        _make_room(axes, above=0.12 * (1 + text.count("\n")))
    axes.text(
        x=0.5, s=text, ha="center", transform=axes.transAxes, fontsize=style.SMALL, color=style.GREY,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}, **place,
    )  # fmt: skip


def _make_room(axes: Axes, below: float = 0.0, above: float = 0.0) -> None:
    """Extend the y axis so that these parts of the axes at the bottom and at the top stay free."""
    drawn = 1 - below - above
    ends = axes.transAxes.transform([(0, -below / drawn), (0, 1 + above / drawn)])
    low, high = axes.transData.inverted().transform(ends)[:, 1]
    axes.set_ylim(low, high)


def _make_legend_entries(panel: Panel) -> list[tuple[Line2D, str]]:
    """Make the (handle, label) of all that a panel shows."""
    entries = [(Line2D([], [], **_choose_line_style(line, panel)), line.label) for line in panel.lines]
    entries += [
        (Line2D([], [], **style.make_published_style(points.series)), points.label) for points in panel.published
    ]
    if panel.failed:
        kinds = sorted({kind for point in panel.failed for kind in point.kinds})
        entries.append((Line2D([], [], **_make_failed_style("black")), f"failed ({', '.join(kinds)})"))
    return entries


def _compute_legend_shape(entries: list[tuple[Line2D, str]]) -> tuple[int, int]:
    """Compute the rows and columns of a legend: as many columns as fit below a panel."""
    if not entries:
        return 0, 1
    widest = max(style.measure_text_width(label, style.SMALL) for _, label in entries) + LEGEND_HANDLE
    columns = min(max(1, int(style.PANEL_WIDTH / widest)), len(entries))
    return math.ceil(len(entries) / columns), columns


def _draw_legend(axes: Axes, panel: Panel) -> None:
    """Draw a panel's legend below it."""
    entries = _make_legend_entries(panel)
    if entries:
        handles, labels = zip(*entries, strict=True)
        axes.legend(
            handles, labels, ncols=_compute_legend_shape(entries)[1], loc="upper center", bbox_to_anchor=(0.5, 0),
            bbox_transform=offset_copy(axes.transAxes, axes.get_figure(root=True), y=-BELOW_AXES, units="inches"),
            frameon=False, borderaxespad=0, handlelength=2.8, columnspacing=1.2, labelspacing=0.3,
        )  # fmt: skip
