"""Draw runs over time: for each run its power or another quantity, its phases and communication."""

import textwrap
from collections.abc import Collection

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from study.instruments.phases import PHASES
from study.report.figures import style
from study.report.figures.drawing import TITLE_LINE
from study.report.figures.timeline import RunOverTime, TimelineData

WIDTH = 2 * style.PANEL_WIDTH  # inches, as all lengths here
LINES_HEIGHT = 0.85
NO_LINES_HEIGHT = 0.25
ONLY_TITLE = 0.01
LANE_HEIGHT = 0.17
AROUND_RUN = 0.5  # title and time axis
LEGEND = 0.4
LEGEND_ROOM = 1.35  # height of the lines' axes over the highest value, so that the legend covers no line
BAR = 0.8  # of a lane's height
REASON_CHARACTERS = 100
# Light enough for black text; neighbours in time differ in lightness too.
PHASE_COLOURS = dict(zip(PHASES, ("#D9D9D9", "#F0B429", "#FBE7B2", "#CC79A7", "#9CCBEB", "#EDEDED"), strict=True))
STRIP_COLOURS = {"negotiation": "#B04A00", "transfer": "#00507A"}


def draw(data: TimelineData) -> Figure:
    """Draw the Matplotlib figure: the runs stacked, with a common time axis."""
    with matplotlib.rc_context(style.RC):
        reasons = {run.reason for run in data.runs if not run.lines}
        is_common = len(reasons) == 1 and not any(run.lines for run in data.runs)  # then it stands above all runs
        common = textwrap.wrap(f"{reasons.pop()}", REASON_CHARACTERS) if is_common else []
        heading = [data.title, data.subtitle, *data.notes, *common]
        heights = [height for run in data.runs for height in _compute_heights(run, is_common)]
        total = sum(heights) + AROUND_RUN * len(data.runs) + LEGEND + TITLE_LINE * len(heading)
        layout = ConstrainedLayoutEngine(hspace=0.01, h_pad=0.02)
        figure = Figure(figsize=(WIDTH, max(total, 1.0)), layout=layout)
        figure.suptitle("\n".join(heading))
        if not data.runs:
            figure.text(0.5, 0.3, "no run came to its end", ha="center", color=style.GREY)
            return figure
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        end = max(run.end for run in data.runs)
        for index, run in enumerate(data.runs):
            _draw_lines(axes[2 * index], run, data.axis, is_common)
            _draw_lanes(axes[2 * index + 1], run)
        axes[-1].set_xlabel("seconds since the launch")
        axes[-1].set_xlim(0, end)
        _draw_legend(figure, data.runs)
        return figure


def _compute_heights(run: RunOverTime, is_common: bool) -> tuple[float, float]:
    """Compute the heights (inches) of the lines' axes and of the lanes below."""
    lanes = LANE_HEIGHT * (len(run.lanes) + len(run.communication))
    return LINES_HEIGHT if run.lines else ONLY_TITLE if is_common else NO_LINES_HEIGHT, lanes


def _draw_lines(axes: Axes, run: RunOverTime, label: str, is_common: bool) -> None:
    """Draw a run's quantity over time, or the reason why there is none, unless it is common to all runs."""
    axes.set_title(run.title, loc="left")
    if is_common:
        axes.set_axis_off()
        return
    axes.grid(axis="y")
    axes.tick_params(labelbottom=False)
    for index, line in enumerate(run.lines):
        looks = style.make_line_style(index, 0, len(run.lines)) | {"marker": ""}
        axes.plot(line.seconds, line.mean, label=line.label, **looks)
        axes.fill_between(line.seconds, line.low, line.high, color=looks["color"], alpha=0.2, linewidth=0)
    if run.lines:
        axes.set_ylim(0, LEGEND_ROOM * max(float(np.nanmax(line.high)) for line in run.lines) or 1.0)
        axes.set_ylabel(label)
        axes.legend(loc="upper left", frameon=False, ncols=len(run.lines))
        return
    axes.set_yticks([])
    reason = textwrap.fill(run.reason or "", REASON_CHARACTERS)
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", fontsize=style.SMALL,
              color=style.GREY)  # fmt: skip


def _draw_lanes(axes: Axes, run: RunOverTime) -> None:
    """Draw the phases of a run's ranks, and strips of communication below."""
    labels: list[str] = []
    for lane in run.lanes:
        low = -len(labels) - BAR / 2
        for phase, begin, end in lane.spans:
            axes.broken_barh([(begin, end - begin)], (low, BAR), facecolor=PHASE_COLOURS[phase], edgecolor="black",
                             linewidth=0.3)  # fmt: skip
        labels.append(lane.label)
    strips = [(label, share, STRIP_COLOURS[label.split()[-1]]) for label, share in run.communication.items()]
    for label, share, colour in strips:
        low = -len(labels) - BAR / 2
        changes = np.flatnonzero(np.diff(share.round(3), prepend=-1, append=-1)[:-1])  # a smaller file
        seconds, heights = np.append(run.seconds[changes], run.end), np.append(share[changes], 0)
        axes.fill_between(seconds, low, low + BAR * heights, step="post", color=colour, linewidth=0)
        axes.axhline(low, color=colour, linewidth=0.3)
        labels.append(label)
    axes.set_yticks(-np.arange(len(labels)), labels)
    axes.set_ylim(-len(labels) + 0.5, 0.5)
    axes.tick_params(axis="y", length=0)


def _draw_legend(figure: Figure, runs: Collection[RunOverTime]) -> None:
    """Draw the legend of phases and strips below all runs."""
    drawn_phases = {phase for run in runs for lane in run.lanes for phase, _, _ in lane.spans}
    entries = [
        Patch(facecolor=PHASE_COLOURS[phase], edgecolor="black", linewidth=0.3, label=phase)
        for phase in PHASES
        if phase in drawn_phases
    ]
    if any(run.communication for run in runs):
        entries += [Patch(facecolor=colour, label=f"{part}, busy share") for part, colour in STRIP_COLOURS.items()]
    figure.legend(handles=entries, loc="outside lower center", ncols=(len(entries) + 1) // 2, frameon=False,
                  handlelength=1.2)  # fmt: skip
