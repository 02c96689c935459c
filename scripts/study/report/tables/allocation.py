"""The scaling table that computing centres ask for in a proposal, from measured and predicted points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from study.core.wording import counted
from study.prediction.series_answer import SeriesAnswer
from study.report.tables.layout import Table

JOULES_PER_KWH = 3.6e6
SHOWN = ["series", "ranks", "nodes", "origin", "time_s", "time_low_s", "time_high_s", "speedup", "efficiency",
         "node_hours", "cost", "energy_kwh", "co2e_modelled_kg", "chosen"]  # fmt: skip


def allocation_table(
    found: Sequence[SeriesAnswer], price: float | None, amount: float = 1.0, grid: float | None = None, pue: float = 1.0
) -> Table:
    """One row per series and count: time, speedup, efficiency, node-hours of the job and what they cost.

    Args:
        found: the answers.
        price: of a node-hour; None leaves cost empty.
        amount: steps, epochs or runs of the job on the smallest measured count.
        grid: g CO2e per kWh; None leaves emissions empty.
        pue: power usage effectiveness, by which the emissions are multiplied.
    """
    frame = pd.concat([_rows(each, price, amount, grid, pue) for each in found], ignore_index=True)
    caption = (
        "Scaling of the job. time_s: one measured time or, where origin is predicted, the median and its 90 % "
        "interval (low, high). speedup, efficiency: against the smallest measured count. node_hours: of the whole "
        "job"
    )
    caption += f"; co2e_modelled_kg is modelled: energy x {grid:g} g/kWh x PUE {pue:g}." if grid else "."
    notes = [line for each in found for line in _notes(each)]
    optional = ("time_low_s", "time_high_s", "cost", "energy_kwh", "co2e_modelled_kg", "chosen")
    return Table("allocation", caption, frame, SHOWN, optional, notes)


def _rows(found: SeriesAnswer, price: float | None, amount: float, grid: float | None, pue: float) -> pd.DataFrame:
    series, table = found.series, found.predictions
    measured = series.points.set_index("ranks")
    ranks = table["ranks"].to_numpy(float)
    own = np.array([measured["time"].get(count, np.nan) for count in ranks])
    is_measured = ~np.isnan(own)
    time = np.where(is_measured, own, table["median"])
    work = time * (ranks if series.is_fixed else 1.0)
    efficiency = work[0] / work
    nodes = np.ceil(ranks / (series.per_node or 1.0))
    job_s = time * amount * (1.0 if series.is_fixed else ranks[0] / ranks)
    energy = np.array([measured["energy_j"].get(count, np.nan) for count in ranks]) * job_s / time / JOULES_PER_KWH
    columns: dict[str, Any] = {
        "series": series.name,
        "ranks": ranks.astype(int),
        "nodes": nodes.astype(int),
        "origin": np.where(is_measured, series.origin, "predicted"),
        "time_s": time,
        "time_low_s": np.where(is_measured, np.nan, table["low"]),
        "time_high_s": np.where(is_measured, np.nan, table["high"]),
        "speedup": efficiency * ranks / ranks[0],
        "efficiency": efficiency,
        "node_hours": nodes * job_s / 3600,
        "cost": nodes * job_s / 3600 * price if price else np.nan,
        "energy_kwh": energy,
        "co2e_modelled_kg": energy * grid / 1000 * pue if grid else np.nan,
        "chosen": ranks == found.recommendation.pick if found.recommendation else False,
    }
    return pd.DataFrame(columns)


def _notes(found: SeriesAnswer) -> list[str]:
    """The sentence for the proposal, then the answer's own."""
    name = found.series.name
    if found.series.per_node is None:
        assumed = [f"{name}: nodes are counted as ranks, since the ranks of a node are not known"]
    else:
        assumed = []
    return [f"{name}: {_proposal(found)}", *assumed, *(f"{name}: {line}" for line in found.sentences)]


def _proposal(found: SeriesAnswer) -> str:
    pick = found.recommendation.pick if found.recommendation else None
    if pick is None:
        return "no count is proposed, for the reason below"
    table = found.predictions.set_index("ranks")
    rank, nodes = table.loc[pick], -(-pick // int(found.series.per_node or 1))
    how = "predicted" if pick not in found.series.counts else found.series.origin
    end = ", and larger ones were not considered" if pick == table.index.max() else ""
    return (
        f"we ask for {counted(nodes, 'node')} ({counted(pick, 'rank')}) per job: {how} time {rank['median']:.4g} s; of "
        f"the counts in this table it serves the goal best{end}"
    )
