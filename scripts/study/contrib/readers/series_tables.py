"""The series of a table in memory, from columns with our names: numbers that are checked, times of the same work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from study.core import throughput_units
from study.core.errors import StudyError
from study.core.wording import format_count
from study.prediction.points import WORKS, Series

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


TIMES = ("time_per_step_s", "time_per_epoch_s", "runtime_s")
NUMBERS = (*TIMES, THROUGHPUT, "batch_size", "load_s", "energy_j", "power_w", "time_std", "repeat")
MAY_BE_ZERO = ("load_s", "time_std", "repeat")
COUNTS = ("ranks", "nodes")
TEXTS = ("series", "unit")
COLUMNS = (*COUNTS, *NUMBERS, *TEXTS)
LEAST, MOST = 1e-100, 1e100  # of a number: their products and squares are still numbers
MOST_RANKS = 10**9
ASSUMED_UNIT = "samples/s"
SCATTERED = 0.2  # relative standard deviation of repeats that is told
LEAST_WATTS, MOST_WATTS = 1.0, 2e4  # of a rank: a rank may be one core, or a node with 16 GPUs
MOST_SCATTER = 1e4  # relative variance: more is as good as nothing known, and its square is still a number


def build_series(
    frame: pd.DataFrame,
    path: object,
    work: str,
    ranks_per_node: int | None = None,
    unit: str | None = None,
    origin: str = "imported",
) -> list[Series]:
    """The series of a table.

    Args:
        frame: with the columns of `docs/prediction.md`, "Points from a CSV file".
        path: for messages; its name is that of the series where there is no column ``series``.
        work: what scaling keeps fixed, one of `WORKS`.
        ranks_per_node: of the machine, where there is no column ``nodes``.
        unit: of the throughput, where there is no column ``unit``; with ``/GPU`` it is that of one rank.
        origin: of the points.

    Raises: `StudyError` with line and column for what is not as expected.
    """
    if work not in WORKS:
        raise StudyError(f"work: {work!r} is none of {', '.join(WORKS)}")
    if frame.empty:
        raise StudyError(f"{path}: there is no row; one per measured rank count is expected")
    quantity = _find_quantity(frame, path)
    _check_numbers(frame, quantity, path)
    names = _name_series(frame, path)
    groups = frame.assign(_line=range(2, len(frame) + 2)).groupby(names, sort=True)
    return [
        _build_one(str(name), *_parse_units(rows, quantity, path, unit), quantity, work, ranks_per_node, origin)
        for name, rows in groups
    ]


def _name_series(frame: pd.DataFrame, path: object) -> pd.Series:
    """The name of each row's series; the file's, where there is none. Raises `StudyError` if only some have one."""
    if "series" not in frame or frame["series"].isna().all():
        return pd.Series(Path(str(path)).stem, frame.index)
    if frame["series"].isna().any():
        line = 2 + int(frame["series"].isna().to_numpy().argmax())
        raise StudyError(f"{path}: line {line}, column 'series': is empty; each row needs the name of its series")
    return frame["series"]


def _find_quantity(frame: pd.DataFrame, path: object) -> str:
    quantities = [name for name in (*TIMES, THROUGHPUT) if name in frame]
    if len(quantities) != 1:
        problem = f"the columns {' and '.join(quantities)}" if quantities else "no column with times"
        expected = (
            f"exactly one of {', '.join((*TIMES, THROUGHPUT))} is expected: times in seconds, or a throughput with "
            "--unit img/s, or img/s/GPU if it is that of one GPU"
        )
        raise StudyError(f"{path}: line 1: {problem}; {expected}")
    return quantities[0]


def _check_numbers(frame: pd.DataFrame, quantity: str, path: object) -> None:
    """Raise `StudyError` for the first number that no job has."""
    for name in (name for name in (*COUNTS, *NUMBERS) if name in frame):
        values = pd.to_numeric(frame[name], errors="coerce").to_numpy(float)
        is_given = ~np.isnan(values)
        wrong = is_given & ~((values >= LEAST) | ((values == 0) & (name in MAY_BE_ZERO)))
        wrong |= values > (MOST_RANKS if name in COUNTS else MOST)
        if name in (quantity, *COUNTS):
            wrong |= ~is_given
        expected = f"a number {'of at least' if name in MAY_BE_ZERO else 'above'} 0"
        if name == "ranks":
            expected = f"a whole number from 1 to {MOST_RANKS}"
        if name == "nodes":
            expected = "a whole number from 1 to the row's ranks"
            wrong |= values > frame["ranks"].to_numpy(float)
        if wrong.any():
            place = int(wrong.argmax())
            value = frame[name].iloc[place]
            value_text = "is empty" if pd.isna(value) else f"{value:g}"
            raise StudyError(f"{path}: line {place + 2}, column {name!r}: {value_text}; {expected} is expected")


def _parse_units(
    rows: pd.DataFrame, quantity: str, path: object, option: str | None
) -> tuple[pd.DataFrame, str | None]:
    """(rows of a series with a column ``_unit`` of `throughput_units.Throughput` or None, unit of the throughput).

    A cell without a unit has that of the others, or the option's. Raises `StudyError` for a unit that is not known, for
    two kinds in a series, and for times in another unit.
    """
    rows = rows.reset_index(drop=True)
    own = rows["unit"] if "unit" in rows else pd.Series(None, rows.index, dtype=object)
    named = own.dropna().unique()
    texts = own.where(own.notna(), named[0] if len(named) == 1 else option if option is not None else np.nan)
    units: list[throughput_units.Throughput | None] = []
    for text, line, is_own in zip(texts, rows["_line"], own.notna(), strict=True):
        place = f"{path}: line {line}, column 'unit'" if is_own else "unit (--unit)"
        try:
            units.append(None if pd.isna(text) or quantity != THROUGHPUT else throughput_units.parse_throughput(text))
        except ValueError as error:
            raise StudyError(f"{place}: {error}") from None
        is_of_times = pd.isna(text) or throughput_units.is_throughput(text)
        if quantity != THROUGHPUT and not is_of_times and throughput_units.parse_time_unit(text) != 1:
            raise StudyError(f"{place}: {text!r}, but {quantity} is in seconds; convert the numbers")
    items = {each.item for each in units if each}
    if len(items) > 1 or (items and None in units):
        problem = " and ".join(sorted(items)) if len(items) > 1 else "no unit in some rows"
        raise StudyError(f"{path}: column 'unit': one series has {problem}; one unit is expected (column series)")
    first = texts.iloc[0]
    unit = ASSUMED_UNIT if pd.isna(first) else re.sub(r"\bgpu", "GPU", str(first).strip())
    return rows.assign(_unit=units), unit if quantity == THROUGHPUT else None


def _build_one(
    name: str,
    rows: pd.DataFrame,
    unit: str | None,
    quantity: str,
    work: str,
    ranks_per_node: int | None,
    origin: str,
) -> Series:
    per_node, notes_on_nodes = _find_ranks_per_node(rows, ranks_per_node)
    comparable = compare_same_work(rows, quantity, work, per_node)
    notes = list(comparable.notes)
    unusable = [each for each in ("energy_j", "time_std") if each in rows and rows[each].notna().any()]
    if comparable.quantity == THROUGHPUT and unusable:
        notes.append(
            f"not used: {' and '.join(unusable)}, since a throughput does not say of how many samples; power_w is used"
        )
        rows = rows.drop(columns=unusable)
    if comparable.quantity == "runtime_s" and "load_s" in rows and rows["load_s"].any():
        notes.append("not used: load_s, since runtime_s includes loading")
    unknown = pd.Series(np.nan, rows.index)
    energy = rows.get("energy_j", unknown) * comparable.factor
    completed = rows.assign(
        time=comparable.times,
        energy_j=energy.fillna(rows.get("power_w", unknown) * comparable.times),
        time_std=rows.get("time_std", unknown) * comparable.factor,
        nodes=rows.get("nodes", unknown),
        load_s=rows.get("load_s", unknown),
    )
    points = pd.DataFrame([_average_repeats(ranks, group) for ranks, group in completed.groupby("ranks", sort=True)])
    notes += [*_describe_copies(rows), *_describe_scatter(points), *_describe_doubtful_power(points), *notes_on_nodes]
    return Series(
        name, comparable.quantity, work, points, per_node, origin, notes, comparable.owner, unit, comparable.samples
    )


def _find_ranks_per_node(rows: pd.DataFrame, ranks_per_node: int | None) -> tuple[float | None, list[str]]:
    """The ranks of a full node, None if unknown, and what is told about it."""
    if "nodes" not in rows or rows["nodes"].isna().all():
        return (float(ranks_per_node) if ranks_per_node else None), []
    full = float(np.ceil((rows["ranks"] / rows["nodes"]).max()))
    if (rows["nodes"] == 1).all():
        if ranks_per_node and ranks_per_node >= full:
            return float(ranks_per_node), []
        if not ranks_per_node:
            ranks = format_count(int(full), "rank")
            return full, [f"all rows are of one node, so {ranks} are taken for a full one; else give --ranks-per-node"]
    notes = []
    if ranks_per_node and ranks_per_node != full:
        notes.append(
            f"the column nodes has up to {full:g} ranks of a node, so --ranks-per-node {ranks_per_node} is not used"
        )
    sparse = rows[rows["nodes"] > np.ceil(rows["ranks"] / full)]
    if len(sparse):
        first = sparse.iloc[0]
        notes.append(
            f"{first['ranks']:.0f} ranks were on {first['nodes']:.0f} nodes, though {full:g} fit on one: it is treated "
            "as on full nodes"
        )
    return full, notes


def _describe_doubtful_power(points: pd.DataFrame) -> Iterator[str]:
    """A sentence on a power that no rank takes, or on one that does not grow with the ranks."""
    with_energy = points[points["energy_j"].notna()]
    if with_energy.empty:
        return
    watts = with_energy["energy_j"] / with_energy["time"]
    of_rank = watts / with_energy["ranks"]
    odd = with_energy[(of_rank < LEAST_WATTS) | (of_rank > MOST_WATTS)]
    ranks, power = with_energy["ranks"].iloc[[0, -1]], watts.iloc[[0, -1]]
    if len(odd):
        place = odd.index[0]
        yield (
            f"are energy_j in joules and power_w in watts? On {format_count(int(with_energy['ranks'][place]), 'rank')} "
            f"they are {of_rank[place]:.3g} W of a rank"
        )
    elif ranks.iloc[1] >= 2 * ranks.iloc[0] and power.iloc[1] < 1.1 * power.iloc[0]:
        yield (
            f"are energy_j and power_w those of all ranks together? The power is {power.iloc[0]:.4g} W on "
            f"{ranks.iloc[0]:.0f} and {power.iloc[1]:.4g} W on {ranks.iloc[1]:.0f}"
        )


def _describe_copies(rows: pd.DataFrame) -> Iterator[str]:
    """A sentence on rows that are the same as an earlier one in all that is read; they count as repeats."""
    read = [name for name in rows if not str(name).startswith("_")]
    if number := int(rows.duplicated(read).sum()):
        are = "is" if number == 1 else "are"
        yield (
            f"{format_count(number, 'row')} {are} the same as an earlier one in all columns that are read, and "
            "counted as repeats: remove what was copied, since copies make the scatter look better known than it is"
        )


def _describe_scatter(points: pd.DataFrame) -> Iterator[str]:
    """A sentence on the repeats that scatter most, if they scatter by more than `SCATTERED`."""
    spread = np.sqrt(points["scatter"] * points["repeats"])
    if spread.max() > SCATTERED:
        ranks = points["ranks"][spread.idxmax()]
        remedy = "measure again without disturbance"
        if spread.max() >= 1 and points["repeats"][spread.idxmax()] == 1:
            remedy = "is time_std in the unit of the times?"
        yield f"times on {format_count(int(ranks), 'rank')} scatter by {spread.max():.0%}: {remedy}"


def _average_repeats(ranks: float, rows: pd.DataFrame) -> dict[str, float]:
    """The mean of the repeats at one count. Their scatter adds to the usual noise of a point, which does not shrink.

    The energy is that of the mean power of the rows that have one: it may be known of some repeats only.
    """
    time, number = float(rows["time"].mean()), len(rows)
    scatter = float(rows["time"].var(ddof=1)) / number / time**2 if number > 1 else 0.0
    stated_variance = float((rows["time_std"] ** 2).mean()) / time**2
    if not np.isnan(stated_variance):
        scatter = max(scatter, stated_variance / number)
    with_energy = rows[rows["energy_j"].notna()]
    watts = float(with_energy["energy_j"].sum() / with_energy["time"].sum()) if len(with_energy) else np.nan
    return {
        "ranks": float(ranks),
        "nodes": float(rows["nodes"].max()),
        "time": time,
        "scatter": min(scatter, MOST_SCATTER),
        "repeats": number,
        "load_s": float(rows["load_s"].mean()),
        "energy_j": watts * time,
    }
