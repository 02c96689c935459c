"""Draw arms against their baseline: a forest plot per baseline, the baseline against itself in the last rows."""

import functools
import textwrap

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from study.compare.arms import FASTER, NO_DIFFERENCE, SLOWER
from study.core.errors import StudyError
from study.core.wording import format_clearly, format_count
from study.report.figures import style
from study.report.figures.description import Description, Labels, get_benchmark_title
from study.report.figures.table_panels import TablePanels
from study.report.tables.summary import IDENTITY
from study.report.tables.tuning import tuning

ROW_HEIGHT = 0.2  # inches, as all lengths here
AROUND = 0.3  # title of a panel and the space above it
HEADING = 1.2  # title of the figure, axis label and legend
NUMBERS = 1.1  # the ratios with their intervals
NAMES = 0.065  # width of a character of the arms' names
WRAP = 90  # characters of the heading
GAP = 0.6  # between the arms and the control, in rows
BAND = "#E4E4E4"
ENDS = ("throughput_ratio_low", "throughput_ratio_high")
COLOUR_OF = {FASTER: style.COLOURS[0], SLOWER: style.COLOURS[1], NO_DIFFERENCE: style.COLOURS[2], None: style.GREY}
MARKER_OF = {FASTER: "o", SLOWER: "s", NO_DIFFERENCE: "D", None: "x"}
NO_VERDICT = "no verdict"  # too few blocks, or the faster one failed more often
# The first that are not too close to each other.
TICKS = (1, 0.1, 10, 0.5, 2, 0.2, 5, 0.8, 1.2, 0.7, 1.5, 0.6, 0.9, 1.1, 1.05, 0.95, 1.02, 0.98, 1.01, 0.99, 3, 0.3)
TICKS_APART = 0.09  # as part of the axis


def select(description: Description, runs: pd.DataFrame, study: str) -> TablePanels:
    """Select the arms of each baseline's panel; raises `StudyError` if no arm has a ratio."""
    frame = tuning(runs, pd.DataFrame()).frame
    if frame.empty or frame["throughput_ratio"].isna().all():
        raise StudyError(f"{description.name}: no arm has a block in common with its baseline in study {study}")
    keys = [name for name in IDENTITY if name in frame]
    in_titles = {"benchmark", "gpus"}  # in each title
    if frame.groupby("benchmark")["dataset"].nunique().max() == 1:
        in_titles.add("dataset")  # by the benchmark
    differing = [name for name in keys if name not in in_titles and frame[name].nunique(dropna=False) > 1]
    panels = [
        (_make_title(dict(zip(keys, key, strict=True)), differing, description.labels), rows)
        for key, rows in frame.groupby(keys, sort=False, dropna=False)
    ]
    where = ", ".join(frame["machine"].unique())
    subtitle = f"study {study}, machine {where}, {_count_blocks(frame['blocks'])}"
    return TablePanels.from_description(description, subtitle, panels)


def _make_title(point: dict[str, object], differing: list[str], labels: Labels) -> str:
    """Make a panel's title: benchmark and ranks of the baseline, and the keys in which it differs from others."""
    benchmark, ranks = get_benchmark_title(str(point["benchmark"]), labels), format_count(point["gpus"], "rank")
    return ", ".join([benchmark, ranks, *(f"{name} {point[name]}" for name in differing)])


def _count_blocks(numbers: pd.Series) -> str:
    """Say the number of blocks, or its range."""
    low, high = int(numbers.min()), int(numbers.max())
    return format_count(low, "block") if low == high else f"{low} to {high} blocks"


def draw(data: TablePanels) -> Figure:
    """Draw the Matplotlib figure: a panel per baseline, one below the other, with one axis and one legend."""
    with matplotlib.rc_context(style.RC):
        together = pd.concat([rows for _, rows in data.panels])
        places = [_assign_places(rows) for _, rows in data.panels]
        heights = [ROW_HEIGHT * (max(each.values()) + 1.2) for each in places]
        names = NAMES * max(map(len, together["arm"]))
        size = (style.PANEL_WIDTH + names + NUMBERS, sum(heights) + AROUND * len(heights) + HEADING)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle("\n".join([data.title, *textwrap.wrap(data.subtitle, WRAP)]))
        all_axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
        for axes, (title, rows), row_places in zip(all_axes, data.panels, places, strict=True):
            _draw_panel(axes, title, rows, row_places)
        _set_ratio_axis(all_axes[0], together)
        all_axes[-1].set_xlabel("steady throughput, arm / baseline, with 95 % interval")
        figure.legend(handles=_make_legend_handles(together), loc="outside lower center", ncols=2, frameon=False)
        return figure


def _assign_places(rows: pd.DataFrame) -> dict[str, float]:
    """Assign each arm its place from above; those that only set control are apart, below the others."""
    is_control = rows["switch"] == "control"
    names, controls = (list(dict.fromkeys(rows.loc[which, "arm"])) for which in (~is_control, is_control))
    places = {name: float(index) for index, name in enumerate(names)}
    return places | {name: len(names) + index + (GAP if names else 0) for index, name in enumerate(controls)}


def _draw_panel(axes: Axes, title: str, rows: pd.DataFrame, places: dict[str, float]) -> None:
    """Draw a baseline's panel: a row per arm, the control below."""
    axes.set_title(title, loc="left")
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8, zorder=2)
    controls = set(rows.loc[rows["switch"] == "control", "arm"])
    for row in rows.to_dict("records"):
        _draw_row(axes, row, places[row["arm"]])
        _write_numbers(axes, row, places[row["arm"]])
    if controls and len(controls) < len(places):
        border = min(places[name] for name in controls) - (1 + GAP) / 2
        axes.axhline(border, color=style.GREY, linewidth=0.6, linestyle=(0, (4, 2)))
    axes.set_yticks(list(places.values()), [f"{name} (A/A)" if name in controls else name for name in places])
    axes.set_ylim(max(places.values()) + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _format_decimals(number: float, decimals: int) -> str:
    return f"{number:.{decimals}f}"


def _write_numbers(axes: Axes, row: dict[str, object], place: float) -> None:
    """Write the ratio with its interval and the number of failed runs, right of the panel."""
    ratio, *ends = (float(row[name]) for name in ("throughput_ratio", *ENDS))  # type: ignore[arg-type]
    low, high = (format_clearly(end, (1,), 2, functools.partial(_format_decimals, end)) for end in ends)
    interval = f" ({low} to {high})" if np.isfinite(ends).all() else ""
    numbers = "" if np.isnan(ratio) else f"{ratio:.2f}{interval}"
    failed = f"{row['repeats_failed']} failed" if row["repeats_failed"] else ""
    text = ", ".join(each for each in (numbers, failed) if each)
    axes.annotate(
        text, (1, place), (4, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
        fontsize=style.SMALL,
    )  # fmt: skip


def _draw_row(axes: Axes, row: dict[str, object], place: float) -> None:
    """Draw an arm: its ratio and interval over the band of differences that are too small to be found."""
    verdict = row["verdict"] if isinstance(row["verdict"], str) else None
    ratio, low, high = (float(row[name]) for name in ("throughput_ratio", *ENDS))  # type: ignore[arg-type]
    if np.isnan(ratio):
        return
    detectable = 1 + float(row["detectable_pct"]) / 100  # type: ignore[arg-type]
    if np.isfinite(detectable):
        axes.fill_betweenx([place - 0.36, place + 0.36], 1 / detectable, detectable, color=BAND, linewidth=0, zorder=1)
    if np.isfinite(low):
        axes.plot([low, high], [place, place], color=COLOUR_OF[verdict], zorder=3)
    axes.plot(ratio, place, marker=MARKER_OF[verdict], color=COLOUR_OF[verdict], markersize=4.5, zorder=4)


def _set_ratio_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """Set a logarithmic x axis for all ratios with their intervals, with a few round ticks."""
    ends = rows[["throughput_ratio", *ENDS]].to_numpy(float)
    low, high = min(1.0, float(np.nanmin(ends))), max(1.0, float(np.nanmax(ends)))
    margin = max((high / low) ** 0.06, 1.005)
    axes.set_xlim(low / margin, high * margin)
    apart = TICKS_APART * np.log(high * margin**2 / low)
    ticks: list[float] = []
    for tick in TICKS:
        if low / margin <= tick <= high * margin and all(abs(np.log(tick / other)) >= apart for other in ticks):
            ticks.append(tick)
    axes.set_xticks(sorted(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _make_legend_handles(rows: pd.DataFrame) -> list[Line2D | Patch]:
    """Make one legend handle per verdict that is drawn, and one of the band."""
    drawn = {each if isinstance(each, str) else None for each in rows.loc[rows["throughput_ratio"].notna(), "verdict"]}
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=COLOUR_OF[each], marker=MARKER_OF[each], markersize=4.5, label=each or NO_VERDICT)
        for each in COLOUR_OF
        if each in drawn
    ]
    if drawn != {None}:
        handles.append(Patch(facecolor=BAND, label="too small to be found (power 0.8)"))
    return handles
