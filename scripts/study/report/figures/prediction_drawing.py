"""Draw predictions: runtime against ranks with its interval, and runtime against energy with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from study.core.statistics import find_pareto_front
from study.prediction.answers import Answer
from study.prediction.recommend import FARTHEST, describe_changing_work
from study.prediction.runtime_model import Interval
from study.prediction.settings import SERIES
from study.report.figures import style
from study.report.figures.style import set_gpu_axis, set_value_axis

HEIGHT = 2.7  # inches per row of panels
COLUMNS = 2
BAND: dict[str, Any] = {"alpha": 0.25, "linewidth": 0}
MEASURED = "measured"


@dataclass(frozen=True)
class PredictionData:
    """The figure's data. curves: one panel each; see `Curve`."""

    name: str
    title: str
    caption: str
    curves: list[Curve]


@dataclass(frozen=True)
class Curve:
    """Predicted and measured values of one series, ascending ranks; seconds and joules of the whole job.

    energy_of: "the job" or "the GPUs". energy_source: of the runs' energies, ``measured`` or ``modelled``.
    """

    title: str
    ranks: np.ndarray
    runtime: Interval
    energy: Interval | None
    measured: pd.DataFrame
    largest: float
    energy_of: str
    energy_source: str


def select(answers: Sequence[Answer], study: str, machine: str) -> PredictionData:
    """Select the curves of all series with at least two rank counts."""
    curves = [
        _make_curve(answer, series)
        for answer in answers
        for series, prediction in answer.predictions.items()
        if len(prediction.settings) > 1
    ]
    caption = (
        "Predicted runtime, and energy where it is known: median and 90 % interval of a single run; points are "
        f"measured means. Counts beyond {FARTHEST} times the largest measured one are never recommended."
    )
    return PredictionData(
        "prediction", f"Predicted time to solution\nstudy {study}, machine {machine}", caption, curves
    )


def _make_curve(answer: Answer, series: tuple[Any, ...]) -> Curve:
    """Make the curve of a series from its prediction and its measured runs."""
    prediction = answer.predictions[series]
    observations = answer.observations[(answer.observations[SERIES] == list(series)).all(axis=1)]
    values = dict(zip(SERIES, series, strict=True))
    has_energy = "energy_job_j" in prediction.draws and not describe_changing_work(prediction.settings)
    rate = f", {values['link_mbit_per_s']:,} Mbit/s" if values["link_mbit_per_s"] else ""
    title = f"{answer.name}\n{values['scaling']} scaling, {values['epochs']} epochs, batch {values['batch_size']}{rate}"
    return Curve(
        title,
        prediction.settings["ranks"].to_numpy(float),
        prediction.interval("runtime_s"),
        prediction.interval("energy_job_j") if has_energy else None,
        observations,
        prediction.largest,
        "the GPUs" if answer.of_gpus else "the job",
        answer.energy_source or MEASURED,
    )


def draw(data: PredictionData) -> Figure:
    """Draw the Matplotlib figure: a panel per series, and one more of runtime against energy where it is known."""
    panels = [(_draw_runtime, curve) for curve in data.curves]
    panels += [(_draw_energy, curve) for curve in data.curves if curve.energy]
    columns = max(1, min(COLUMNS, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    figure = Figure(figsize=(columns * style.PANEL_WIDTH, rows * HEIGHT + 0.4), layout="constrained")
    figure.suptitle(data.title if panels else f"{data.title}\nno workload has been measured at enough rank counts")
    for index, (draw_panel, curve) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, index + 1)
        draw_panel(axes, curve)
        axes.set_title(curve.title)
        axes.legend(frameon=False)
    return figure


def _draw_runtime(axes: Axes, curve: Curve) -> None:
    """Draw predicted and measured runtime against ranks."""
    low, median, high = curve.runtime
    colour = style.COLOURS[0]
    axes.fill_between(curve.ranks, low, high, color=colour, label="90 % interval, predicted", **BAND)
    axes.plot(curve.ranks, median, color=colour, label="median, predicted")
    axes.plot(curve.measured["ranks"], curve.measured["runtime_s"], label=MEASURED, **_make_points_style())
    if curve.ranks[-1] > curve.largest:
        axes.axvspan(curve.largest, curve.ranks[-1] * 2, color=style.GREY, alpha=0.08, linewidth=0)
        axes.annotate(
            "not measured", (1, 0), (-3, 3), xycoords="axes fraction", textcoords="offset points", ha="right",
            color=style.GREY, fontsize=style.SMALL,
        )  # fmt: skip
    measured = curve.measured["runtime_s"].to_numpy(float)
    set_value_axis(axes, "log", np.append(low, measured), np.append(high, measured))
    set_gpu_axis(axes, [int(count) for count in curve.ranks])
    axes.set_xlabel("ranks")
    axes.set_ylabel("runtime (s)")
    axes.grid(axis="y")


def _make_points_style() -> dict[str, Any]:
    """Make the style of measured points."""
    return {"linestyle": "none", "marker": "o", "markersize": 4.5, "color": style.COLOURS[2]}


def _draw_energy(axes: Axes, curve: Curve) -> None:
    """Draw predicted and measured energy against runtime, with the Pareto front."""
    near = curve.ranks <= FARTHEST * curve.largest  # those beyond are no candidates, and beat none
    ends = [np.stack(each)[:, near] for each in (curve.runtime, cast(Interval, curve.energy))]
    runtime, energy = (middle for _, middle, _ in ends)
    front = find_pareto_front(runtime, energy)
    axes.plot(runtime, energy, color=style.COLOURS[0], linewidth=0.8, linestyle=style.DASHES[1])
    spread = [np.abs(each[::2] - each[1]) for each in ends]
    axes.errorbar(
        runtime, energy, xerr=spread[0], yerr=spread[1], linestyle="none", elinewidth=0.6, ecolor=style.GREY, zorder=1
    )
    look: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": style.COLOURS[0]}
    axes.plot(runtime, energy, markerfacecolor="white", markersize=5, label="predicted", **look)
    axes.plot(runtime[front], energy[front], markersize=5, label="Pareto front, predicted", **look)
    with_energy = curve.measured[curve.measured["energy_per_rank_j"].notna()]
    label = MEASURED if curve.energy_source == MEASURED else f"measured time, {curve.energy_source} energy"
    energies = with_energy["energy_per_rank_j"] * with_energy["ranks"]
    axes.plot(with_energy["runtime_s"], energies, label=label, **_make_points_style())
    for count, x, y in zip(curve.ranks[near], runtime, energy, strict=True):
        axes.annotate(f"{count:g}", (x, y), (4, 4), textcoords="offset points", fontsize=style.SMALL)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("runtime (s)")
    axes.set_ylabel(f"energy of {curve.energy_of} (J)")
    axes.grid()
