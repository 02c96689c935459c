"""Times of the same work, from what was measured: times of other batches, throughputs of a rank or of all, steps/s."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.wording import format_count

THROUGHPUT = "throughput"
STEP = "time_per_step_s"
MOST_NAMED = 8  # counts with their batches, in a message
ROUNDED = 0.02  # relative: batches are whole numbers, so those of a rank may differ by as much


@dataclass(frozen=True)
class SameWork:
    """Comparable times of the rows of a series.

    Args:
        quantity: what they are: the column of the times, or ``throughput`` where they are those of some samples.
        times: of the same work (of a rank, or of all ranks together), in s.
        factor: by which measured times became these.
        owner: whose the throughput is, ``all``, ``rank`` or ``node``; None where steps or times were measured.
        samples: whose time it is of each rank, or of all together; 1 where steps or times were measured.
        notes: what was assumed, in sentences.
    """

    quantity: str
    times: pd.Series
    factor: pd.Series
    owner: str | None = None
    samples: float = 1.0
    notes: list[str] = field(default_factory=list)


def compare_same_work(rows: pd.DataFrame, quantity: str, work: str, per_node: float | None) -> SameWork:
    """The times of a series: those of steps scaled to the batch of the smallest count, others as they are.

    Args:
        rows: with the columns ranks, that of ``quantity``, ``_unit`` (`throughput_units.Throughput`, or None) and, if
            known, nodes and batch_size.
        quantity: which column was measured.
        work: one of `study.prediction.points.WORKS`.
        per_node: ranks of a node; None if unknown.
    """
    batch, notes = _read_batch(rows, work)
    unit, one = rows["_unit"].iloc[0], pd.Series(1.0, rows.index)
    times = rows[quantity].astype(float)
    if quantity == THROUGHPUT:
        times = 1 / _compute_throughput_of_all(rows, per_node)
        if unit is None or not unit.time_of:
            is_known = bool(batch.notna().all() and batch.nunique() == 1)
            samples = float(batch.iloc[0]) if is_known else 1.0
            if unit is None:
                notes.append("the unit of the throughput is not given; samples/s of all ranks together is assumed")
            notes += _describe_changed_batch(rows, batch, "so it is not used")
            text = format_count(_format_size(samples), unit.item if unit else "sample")
            notes.append(f"times are those of {text}{'' if work == 'fixed' else ' of each rank'}")
            times *= samples if work == "fixed" else samples * rows["ranks"]
            return SameWork(THROUGHPUT, times, one, unit.per if unit else "all", samples, notes)
        quantity = unit.time_of
        notes.append(f"each {unit.item} is taken by all ranks together, so the throughput is read as {quantity}")
    if quantity != STEP:
        consequence = "and with it the number of steps, so times are not quite alike"
        return SameWork(quantity, times, one, notes=[*notes, *_describe_changed_batch(rows, batch, consequence)])
    first = batch[rows["ranks"].idxmin()]
    factor = first / batch if batch.notna().all() else one
    consequence = f"so each time was divided by its batch and is that of a batch of {_format_size(first)}"
    notes += _describe_changed_batch(rows, batch, consequence)
    return SameWork(quantity, times * factor, factor, notes=notes)


def _read_batch(rows: pd.DataFrame, work: str) -> tuple[pd.Series, list[str]]:
    """The batch whose size tells the work of a step, and what is told about it.

    It is that of a rank, or of all ranks where these share a fixed work. Batches of the other kind are noticed by their
    growth: one of all ranks is proportional to the ranks where each rank's is fixed, and one of a rank falls where that
    of all is fixed.
    """
    batch = rows["batch_size"] if "batch_size" in rows else pd.Series(np.nan, rows.index)
    other = batch * rows["ranks"] if work == "fixed" else batch / rows["ranks"]
    if batch.isna().any() or batch.nunique() == 1 or other.max() > (1 + ROUNDED) * other.min():
        return batch, []
    size = other[rows["ranks"].idxmin()]
    note = (
        f"batch_size falls as the ranks grow, so it is read as that of one rank: {_format_size(size)} of all together"
        if work == "fixed"
        else f"batch_size grows with the ranks, so it is read as that of all together: {_format_size(size)} of each"
    )
    return pd.Series(size, rows.index), [note]


def _describe_changed_batch(rows: pd.DataFrame, batch: pd.Series, consequence: str) -> list[str]:
    """A sentence if the batch changes with the ranks, or if some rows have none."""
    if batch.isna().any() and batch.notna().any():
        return ["some rows have no batch_size, so it is not used"]
    if batch.nunique() < 2:
        return []
    by_ranks = batch.groupby(rows["ranks"]).unique()
    sizes = [f"{' and '.join(map(_format_size, each))} on {ranks:.0f}" for ranks, each in by_ranks.items()]
    shown = ", ".join([*sizes[:MOST_NAMED], *(["..."] if len(sizes) > MOST_NAMED else [])])
    return [f"the batch size changes ({shown}), {consequence}"]


def _format_size(size: float) -> str:
    """A batch as people write it: 1048576, not 1.04858e+06."""
    return f"{size:.10g}"


def _compute_throughput_of_all(rows: pd.DataFrame, per_node: float | None) -> pd.Series:
    """The throughput of all ranks, in items/s; raises `StudyError` if it is one of a node and the nodes are unknown."""
    derived_nodes = np.ceil(rows["ranks"] / (per_node or np.nan))
    nodes = rows["nodes"].fillna(derived_nodes) if "nodes" in rows else derived_nodes
    cells = zip(rows[THROUGHPUT], rows["_unit"], rows["ranks"], nodes, strict=True)
    values = [value if unit is None else unit.of_all_ranks(value, ranks, node) for value, unit, ranks, node in cells]
    whole = pd.Series(values, rows.index, dtype=float)
    if whole.isna().any():
        raise StudyError("unit per node: the nodes are not known; add a column nodes or give --ranks-per-node")
    return whole
