"""Draw what links of several rates cost: time per step against hosts, and allreduce bandwidth against message size."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from study.core.errors import StudyError
from study.report.figures import style
from study.report.figures.description import Description
from study.report.figures.style import set_gpu_axis, set_value_axis
from study.report.figures.table_panels import TablePanels
from study.report.tables import TABLES
from study.report.tables.summary import IDENTITY

HEIGHT = 3.6  # inches
LIMIT: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 1.0, "marker": ""}
SIZES = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def select(description: Description, runs: pd.DataFrame, study: str) -> TablePanels:
    """Select the steps and the allreduce sweep of one workload; raises `StudyError` without a run with a link rate."""
    nothing = pd.DataFrame()
    steps, sweep = (TABLES[name].make(runs, nothing).frame for name in ("network", "allreduce"))
    steps = steps[steps["time_per_step_s"].notna()]
    if steps.empty:
        raise StudyError(f"{description.name}: no run with link_mbit_per_s succeeded in study {study}")
    sweep = sweep[sweep["busbw_gb_per_s"].notna()]
    several = [
        name
        for name in IDENTITY
        if name not in ("gpus", "link_mbit_per_s")
        and any(name in frame and frame[name].nunique() > 1 for frame in (steps, sweep))
    ]
    if several:
        raise StudyError(f"{description.name}: draws one workload, but the study's differ in {', '.join(several)}")
    benchmarks = ", ".join(
        f"{name} (gradients {group['gradient_mb'].iloc[0]:.2g} MB)" for name, group in steps.groupby("benchmark")
    )
    where = ", ".join(steps["machine"].unique())
    subtitle = f"study {study}, machine {where}, {benchmarks}\none machine's cores and memory; emulated link rates"
    subtitle += "; bars: 95 % intervals"
    return TablePanels.from_description(description, subtitle, [("Training", steps), ("Allreduce", sweep)])


def draw(data: TablePanels) -> Figure:
    """Draw the Matplotlib figure: two panels, one colour per link rate in both."""
    (_, steps), (_, sweep) = data.panels
    rates = sorted(set(steps["link_mbit_per_s"]) | set(sweep["link_mbit_per_s"]))
    figure = Figure(figsize=(2 * style.PANEL_WIDTH, HEIGHT), layout="constrained")
    figure.suptitle(f"{data.title}\n{data.subtitle}")
    steps_axes, sweep_axes = figure.subplots(1, 2)
    _draw_steps(steps_axes, steps, rates)
    _draw_sweep(sweep_axes, sweep, rates)
    return figure


def _draw_steps(axes: Axes, steps: pd.DataFrame, rates: list[int]) -> None:
    """Draw the time per step against hosts, a line per link rate, with the limits of the links."""
    counts = sorted(set(steps["gpus"]))
    for index, rate in enumerate(rates):
        rows = steps[steps["link_mbit_per_s"] == rate].sort_values("gpus")
        look = style.make_line_style(index, 0, len(rates))
        axes.errorbar(
            rows["gpus"], rows["time_per_step_s"], yerr=rows["time_per_step_ci95_s"].fillna(0), capsize=2,
            elinewidth=0.8, zorder=3, **look,
        )  # fmt: skip
        busy = rows[rows["cpu_limited"]]
        axes.plot(busy["gpus"], busy["time_per_step_s"], zorder=4, **_make_hollow(look))
        several = rows[rows["gpus"] > 1]
        axes.plot(several["gpus"], several["wire_limit_s"], color=look["color"], **LIMIT)
    axes.set_title("(a) Training")
    axes.set_ylabel("time per step (s)")
    mean, half = steps["time_per_step_s"].to_numpy(float), steps["time_per_step_ci95_s"].fillna(0).to_numpy(float)
    limits = steps.loc[steps["gpus"] > 1, "wire_limit_s"].to_numpy(float)
    set_value_axis(axes, "log", np.append(mean - half, limits), np.append(mean + half, limits))
    axes.grid(axis="y")
    set_gpu_axis(axes, counts)
    axes.set_xlabel("hosts, one rank each")
    handles = [Line2D([], [], **style.make_line_style(i, 0, len(rates))) for i in range(len(rates))]
    handles += [Line2D([], [], color=style.GREY, **LIMIT)]
    labels = [*(f"{rate:,} Mbit/s" if rate else "no limit" for rate in rates), "limit of the link"]
    if steps["cpu_limited"].any():
        handles.append(Line2D([], [], **_make_hollow({"color": style.GREY, "marker": "o", "markersize": 5})))
        labels.append("cores at least 90 % busy")
    axes.figure.legend(handles, labels, loc="outside lower left", ncols=2, frameon=False)


def _make_hollow(look: dict[str, Any]) -> dict[str, Any]:
    """Turn a line's style into that of hollow marks without a line."""
    return {**look, "linestyle": "none", "markerfacecolor": "white", "markeredgewidth": 1.0}


def _draw_sweep(axes: Axes, sweep: pd.DataFrame, rates: list[int]) -> None:
    """Draw the allreduce bandwidth against message size, a line per link rate and number of hosts."""
    hosts = sorted(set(sweep["gpus"]))
    for index, rate in enumerate(rates):
        colour = style.COLOURS[index % len(style.COLOURS)]
        for place, number in enumerate(hosts):
            rows = sweep[(sweep["link_mbit_per_s"] == rate) & (sweep["gpus"] == number)].sort_values("message_bytes")
            axes.plot(rows["message_bytes"], rows["busbw_gb_per_s"] * 8e3, color=colour, **_make_hosts_style(place))
        if rate:
            axes.axhline(rate, color=colour, **LIMIT)
    axes.set_title("(b) Allreduce")
    axes.set_ylabel("bus bandwidth (Mbit/s)")
    axes.set_xlabel("message size")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.grid(axis="y")
    sizes = sorted(set(sweep["message_bytes"]))
    axes.set_xticks(sizes, [_format_size(size) for size in sizes], rotation=45)
    axes.xaxis.set_minor_locator(NullLocator())
    handles = [Line2D([], [], color=style.GREY, **_make_hosts_style(place)) for place in range(len(hosts))]
    axes.figure.legend(
        handles, [f"{number} hosts" for number in hosts], loc="outside lower right", ncols=2, frameon=False
    )


def _make_hosts_style(place: int) -> dict[str, Any]:
    """Choose the style of the lines of one number of hosts."""
    marker, dashes = style.MARKERS[place % len(style.MARKERS)], style.DASHES[place % len(style.DASHES)]
    return {"marker": marker, "linestyle": dashes, "markersize": 4}


def _format_size(number: int) -> str:
    """Format a number of bytes with its unit, as ``64 KiB``."""
    unit, name = next(((unit, name) for unit, name in SIZES if number >= unit), (1, "B"))
    return f"{number / unit:g} {name}"
