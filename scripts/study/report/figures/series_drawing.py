"""Draw the curves of predicted series: time against ranks with its interval, one panel per series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.core.files import write_aside
from study.prediction.series_answer import SeriesAnswer
from study.report.figures import style
from study.report.figures.style import set_gpu_axis, set_value_axis

HEIGHT = 2.7  # inches per panel
COLUMNS = 2
MOST_PANELS = 40


def write_series_figure(answers: Sequence[SeriesAnswer], paths: Sequence[Path]) -> None:
    """Draw at most `MOST_PANELS` series and write the figure, in the format of each path's ending (svg, pdf)."""
    drawn = answers[:MOST_PANELS]
    columns = min(COLUMNS, len(drawn))
    rows = -(-len(drawn) // columns)
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(columns * style.PANEL_WIDTH, rows * HEIGHT), layout="constrained")
        for place, answer in enumerate(drawn, 1):
            _draw_series(figure.add_subplot(rows, columns, place), answer)
        for path in paths:
            form = path.suffix.removeprefix(".")
            with write_aside(path) as aside:
                figure.savefig(aside, format=form, metadata={"Date" if form == "svg" else "CreationDate": None})


def _draw_series(axes: Axes, answer: SeriesAnswer) -> None:
    """Draw a series: measured points, and the predicted median with its interval."""
    table, points = answer.predictions_in_unit(), answer.series.points
    measured = answer.series.to_unit(points["time"].to_numpy(float), points["ranks"].to_numpy(float))
    ranks = table["ranks"].to_numpy(float)
    low, high = (table[name].fillna(table["median"]).to_numpy(float) for name in ("low", "high"))
    if table["low"].notna().any():
        axes.fill_between(ranks, low, high, color=style.COLOURS[0], alpha=0.25, linewidth=0, label="90 %, predicted")
        axes.plot(ranks, table["median"], color=style.COLOURS[0], label="median, predicted")
    origins = answer.series.list_origins(answer.series.counts)
    for place, origin in enumerate(dict.fromkeys(origins)):
        own = origins == origin
        axes.plot(
            points["ranks"][own], measured[own], linestyle="none", marker="os"[place], markersize=4.5,
            color=style.COLOURS[2 + place], label=origin,
        )  # fmt: skip
    set_value_axis(axes, "log", np.append(low, measured), np.append(high, measured))
    set_gpu_axis(axes, sorted({int(count) for count in ranks}))
    axes.set_xlabel("ranks")
    series = answer.series
    axes.set_ylabel(f"throughput ({series.unit})" if series.is_throughput else f"time (s), {series.quantity}")
    axes.set_title(answer.series.name.replace("$", r"\$"))  # no formula
    axes.legend(frameon=False)
    axes.grid(axis="y")
