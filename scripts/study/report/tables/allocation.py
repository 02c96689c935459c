"""The scaling table that computing centres ask for in a proposal, from measured and predicted points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from study.core.wording import format_count, format_significant
from study.prediction.series_answer import SeriesAnswer
from study.report.tables.layout import Table

JOULES_PER_KWH = 3.6e6
SHOWN = ["series", "ranks", "nodes", "origin", "time_s", "time_low_s", "time_high_s", "speedup", "efficiency",
         "node_hours", "cost", "energy_kwh", "co2e_modelled_kg", "chosen"]  # fmt: skip


def allocation_table(
    answers: Sequence[SeriesAnswer],
    price: float | None,
    amount: float = 1.0,
    grid: float | None = None,
    pue: float = 1.0,
    figure: str | None = None,
) -> Table:
    """One row per series and count: time, speedup, efficiency, node-hours of the job and what they cost.

    Args:
        answers: of the series.
        price: of a node-hour; None leaves cost empty.
        amount: steps, epochs or runs of the job on the smallest measured count.
        grid: g CO2e per kWh; None leaves emissions empty.
        pue: power usage effectiveness, by which the emissions are multiplied.
        figure: of the curves; see `Table`.
    """
    parts = [_rows(each, price, amount, grid, pue) for each in answers]
    frame = pd.concat(parts, ignore_index=True)
    caption = (
        "Scaling of the job. time_s: the mean of the measured times or, where origin is predicted, the median and its "
        "90 % interval (low, high). speedup, efficiency: of time_s for the same work, against the smallest measured "
        "count. node_hours: of the whole job"
    )
    if any(each.series.loads(each.series.counts).any() for each in answers):
        caption += ", with its loading, which time_s and energy_kwh are without"
    has_energy = bool(frame["energy_kwh"].notna().any())
    if has_energy:
        caption += "; energy_kwh of a predicted count is the power of a rank on the nearest measured counts x the time"
    is_modelled = grid and has_energy
    caption += f"; co2e_modelled_kg is modelled: energy x {grid:g} g/kWh x PUE {pue:g}." if is_modelled else "."
    notes = [line for each, rows in zip(answers, parts, strict=True) for line in _notes(each, rows, amount, grid)]
    optional = ("time_low_s", "time_high_s", "cost", "energy_kwh", "co2e_modelled_kg", "chosen")
    return Table("allocation", caption, frame, SHOWN, optional, notes, figure=figure)


def _rows(answer: SeriesAnswer, price: float | None, amount: float, grid: float | None, pue: float) -> pd.DataFrame:
    series, table = answer.series, answer.predictions
    measured = series.points.set_index("ranks")
    ranks = table["ranks"].to_numpy(float)
    own = np.array([measured["time"].get(count, np.nan) for count in ranks])
    is_measured = ~np.isnan(own)
    time = np.where(is_measured, own, table["median"])
    first, first_time = series.counts[0], series.times[0]  # a predicted count may be smaller
    speedup = first_time / time * (1.0 if series.is_fixed else ranks / first)
    nodes = np.ceil(ranks / (series.per_node or 1.0))
    job_s = time * series.get_job_shares(ranks, amount)
    hours = (job_s + series.loads(ranks)) / 3600
    watts = series.compute_watts(ranks)
    is_told = ~np.isin(ranks, series.points["ranks"][series.points["energy_j"].isna()])
    energy = np.nan if watts is None else np.where(is_told, watts * ranks * job_s / JOULES_PER_KWH, np.nan)
    columns: dict[str, Any] = {
        "series": series.name,
        "ranks": ranks.astype(int),
        "nodes": nodes.astype(int),
        "origin": series.list_origins(ranks),
        "time_s": time,
        "time_low_s": np.where(is_measured, np.nan, table["low"]),
        "time_high_s": np.where(is_measured, np.nan, table["high"]),
        "speedup": speedup,
        "efficiency": speedup * first / ranks,
        "node_hours": nodes * hours,
        "cost": nodes * hours * price if price else np.nan,
        "energy_kwh": energy,
        "co2e_modelled_kg": energy * grid / 1000 * pue if grid else np.nan,
        "chosen": ranks == (answer.pick or 0),
    }
    return pd.DataFrame(columns)


def _notes(answer: SeriesAnswer, rows: pd.DataFrame, amount: float, grid: float | None) -> list[str]:
    """The sentence for the proposal, what was assumed or is missing, then the answer's own; each in one line."""
    lines = [_proposal(answer, rows, amount)]
    if answer.series.per_node is None:
        lines.append("each rank is counted as a node, since the ranks of a node are not known; give --ranks-per-node")
    if grid and rows["energy_kwh"].isna().all():
        lines.append("no emissions are modelled, since the points have neither power_w nor an energy_j that is used")
    return [" ".join(f"{answer.series.name}: {line}".split()) for line in (*lines, *answer.sentences)]


def _proposal(answer: SeriesAnswer, rows: pd.DataFrame, amount: float) -> str:
    """The sentence "we ask for N nodes ..." at the picked count, or why none is proposed.

    rows: of this answer's table. amount: steps, epochs or runs of the job on the smallest measured count.
    """
    pick = answer.pick
    if pick is None:
        return "no count is proposed, for the reason below"
    row = rows[rows["ranks"] == pick].iloc[0]
    series, hours, at = answer.series, row["node_hours"] / row["nodes"], np.array([float(pick)])
    ranks = format_count(pick, "rank")
    request = ranks if series.per_node is None else f"{format_count(int(row['nodes']), 'node')} ({ranks})"
    first = format_count(int(series.counts[0]), "rank")
    efficiency = f"at {row['efficiency']:.0%} of the efficiency of {first}"
    if series.is_throughput and amount == 1:
        value = format_significant(series.to_unit(np.array([row["time_s"]]), at)[0], digits=4)
        return (
            f"we ask for {request}: {row['origin']} throughput {value} {series.unit}, {efficiency}; give --amount, the "
            "size of the job, for its time and node-hours"
        )
    span = ""
    if pd.notna(row["time_low_s"]):
        share, load = series.get_job_shares(at, amount)[0], series.loads(at)[0]
        ends = (row["time_low_s"], row["time_high_s"])
        low, high = (format_significant((end * share + load) / 3600) for end in ends)
        span = f", 90 % interval {low} to {high} h"
    cost = f" ({format_significant(row['cost'], digits=4)} in money)" if pd.notna(row["cost"]) else ""
    end = "; larger counts were not considered" if pick == rows["ranks"].max() else ""
    return (
        f"we ask for {request} and {format_significant(row['node_hours'], digits=4)} node-hours{cost} per job: "
        f"{row['origin']} time {format_significant(hours)} h{span}, {efficiency}; of the counts in this table it "
        f"serves the goal best{end}"
    )
