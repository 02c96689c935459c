"""Draw what a training step's time goes into: a panel for each benchmark, and in it a stacked bar for each point."""

import textwrap
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.core.errors import StudyError
from study.experiment.parameters import PARAMETERS
from study.report.figures import style
from study.report.figures.description import Description, get_benchmark_title
from study.report.figures.table_panels import TablePanels
from study.report.tables.declared import load_declarations, make_points
from study.report.tables.kinds import TABLES, select_runs
from study.report.tables.summary import IDENTITY

WORK = ["benchmark", "dataset", "scaling"]
NAMED = ("framework", "strategy", "gpus")  # in each bar's label
STEP = "operations_step_s"
# In the order in which a moment of a step counts.
PARTS = ("operations_compute_s", "operations_copies_s", "operations_communication_s", "operations_input_wait_s",
         "operations_idle_s")  # fmt: skip
LABELS = dict(zip(PARTS, ("compute", "copies, not hidden", "communication, not hidden", "wait for the batch", "idle"),
                  strict=True))  # fmt: skip
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": style.COLOURS[0]},
    {"color": style.COLOURS[4]},
    {"color": style.COLOURS[1]},
    {"color": style.COLOURS[3], "hatch": "////"},
    {"color": "#DDDDDD"},
)
BAR, AROUND, LEGEND = 0.28, 0.75, 0.9  # inches: of a bar with its gap, around a panel's bars, of title and legend
ROOM = 90  # characters of a line of the title


def select(description: Description, runs: pd.DataFrame, study: str) -> TablePanels:
    """Select the bars of each panel; raises `StudyError` if no run has a profile of its operations."""
    used = select_runs(runs, TABLES["operations"].uses)
    frame = make_points(load_declarations()["operations"], used, pd.DataFrame()).frame
    frame = frame[frame[STEP].notna()]
    if frame.empty:
        raise StudyError(f"{description.name}: no run of study {study} that ended well has its operations profiled")
    panels = []
    for (benchmark, dataset, scaling), rows in frame.groupby(WORK, sort=False):
        title = f"{get_benchmark_title(str(benchmark), description.labels)}, {scaling} scaling, {dataset}"
        panels.append((title, rows.assign(point=_name_bars(rows))))
    subtitle = f"rank 0; study {study}, machine {', '.join(frame['machine'].unique())}; profiling slows the steps"
    return TablePanels.from_description(description, subtitle, panels)


def _name_bars(rows: pd.DataFrame) -> list[str]:
    """Name each bar: framework, strategy, ranks, and the keys in which it differs from others of its panel."""
    names = [name for name in IDENTITY if name not in (*WORK, *NAMED) and rows[name].nunique(dropna=False) > 1]
    return [
        "\n".join([_name_configuration(row), *(_describe_key(name, row[name]) for name in names)])
        for row in rows.to_dict("records")
    ]


def _name_configuration(row: dict[str, Any]) -> str:
    """Name the framework, strategy and ranks of a row."""
    ranks = f"{row['gpus']} rank{'s' * (row['gpus'] != 1)}"
    strategy = "" if row["gpus"] == 1 else f", {row['strategy']}"
    return f"{row['framework']}{strategy}, {ranks}"


def _describe_key(name: str, value: object) -> str:
    """Describe a grid key and its value in words."""
    if name not in PARAMETERS:
        return str(value)
    return f"{PARAMETERS[name].words} {value} {PARAMETERS[name].unit or ''}".strip()


def draw(data: TablePanels) -> Figure:
    """Draw the Matplotlib figure, with one legend for all panels."""
    with matplotlib.rc_context(style.RC):
        heights = [AROUND + sum(BAR * max(1, 1 + point.count("\n") * 0.5) for point in rows["point"])
                   for _, rows in data.panels]  # fmt: skip
        figure = Figure(figsize=(2 * style.PANEL_WIDTH, LEGEND + sum(heights)), layout="constrained")
        figure.suptitle("\n".join([data.title, *textwrap.wrap(data.subtitle, ROOM)]))
        panels = figure.subplots(len(data.panels), 1, squeeze=False, height_ratios=heights).ravel()
        for axes, (title, rows) in zip(panels, data.panels, strict=True):
            _draw_panel(axes, title, rows)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(LABELS), frameon=False)
        return figure


def _draw_panel(axes: Axes, title: str, rows: pd.DataFrame) -> None:
    """Draw a stacked bar of the parts of a step for each row."""
    axes.set_title(title, loc="left")
    places = range(len(rows))
    begins = pd.Series(0.0, index=rows.index)
    for (name, label), look in zip(LABELS.items(), LOOKS, strict=True):
        width = pd.to_numeric(rows[name]).fillna(0) * 1e3
        axes.barh(places, width, left=begins, height=0.6, label=label, edgecolor="white", linewidth=0.4, **look)
        begins = begins + width
    lacks_communication = rows[PARTS[2]].isna() & (rows["gpus"] > 1)
    for place, end in zip(places, begins, strict=True):
        if lacks_communication.iloc[place]:
            axes.annotate("idle includes communication", (end, place), (3, 0), textcoords="offset points",
                          va="center", fontsize=style.SMALL)  # fmt: skip
    axes.set_yticks(places, rows["point"])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, float(begins.max()) * (1.45 if lacks_communication.any() else 1.05))
    axes.set_xlabel("time per step (ms)")
    axes.grid(axis="x")
