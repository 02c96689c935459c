"""Points that anybody has: time, or throughput, against ranks in a CSV file. One series is one job at several counts.

Times are those of a step, an epoch or a run. A throughput becomes the time of ``batch_size`` samples of each rank, or
of all ranks together where these share a fixed work; without a batch size, or where it changes, of one sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.foreign_csv import ForeignTable, read_foreign_csv
from study.core.wording import counted
from study.prediction import units
from study.prediction.series_model import LEAST_COUNTS, SeriesModel, fit_series

WORKS = ("fixed", "per_rank", "epochs")
TIMES = ("time_per_step_s", "time_per_epoch_s", "runtime_s")
THROUGHPUT = "throughput"
NUMBERS = (*TIMES, THROUGHPUT, "batch_size", "gradient_mb", "load_s", "energy_j", "power_w", "time_std", "repeat")
MAY_BE_ZERO = ("load_s", "time_std", "repeat")
COUNTS = ("ranks", "nodes")
TEXTS = ("series", "unit")
COLUMNS = (*COUNTS, *NUMBERS, *TEXTS)
REMEDY = "correct the file"
LEAST, MOST = 1e-100, 1e100  # of a number: their products and squares are still numbers
MOST_RANKS = 10**9
SCATTERED = 0.2  # relative standard deviation of repeats that is told


@dataclass(frozen=True)
class Series:
    """One job at several counts.

    Args:
        name: from the column ``series``, else the file's name.
        quantity: the column with the times, or with the throughput.
        work: one of `WORKS`.
        points: a row per count, ascending: ranks, nodes (NaN if unknown), time (s, mean of the repeats), scatter
            (relative variance of that mean), repeats, load_s, energy_j (of all ranks, during ``time``; NaN if unknown).
        per_node: ranks of a node; None if unknown.
        origin: ``measured`` or ``imported``.
        notes: what was assumed, in sentences.
    """

    name: str
    quantity: str
    work: str
    points: pd.DataFrame
    per_node: float | None
    origin: str = "imported"
    notes: list[str] = field(default_factory=list)

    @property
    def is_fixed(self) -> bool:
        """Whether perfect scaling halves the time on twice the ranks; otherwise it stays."""
        return self.work == "fixed" or (self.work == "epochs" and self.quantity == "runtime_s")

    @property
    def counts(self) -> np.ndarray:
        """The counts, ascending."""
        return self.points["ranks"].to_numpy(float)

    def model(self) -> SeriesModel | None:
        """The fitted model; None with fewer than `LEAST_COUNTS` counts."""
        if len(self.points) < LEAST_COUNTS:
            return None
        times, scatter = (self.points[name].to_numpy(float) for name in ("time", "scatter"))
        return fit_series(self.counts, times, self.is_fixed, self.per_node, scatter)


def read_points(
    path: Path, work: str, ranks_per_node: int | None = None, unit: str | None = None, origin: str = "imported"
) -> list[Series]:
    """The series in a CSV file.

    Args:
        path: with the columns of `docs/prediction.md`, "Points from a CSV file".
        work: what scaling keeps fixed, one of `WORKS`.
        ranks_per_node: of the machine, where there is no column ``nodes``.
        unit: of the throughput, where there is no column ``unit``; with ``/GPU`` it is that of one rank.
        origin: of the points.

    Raises: `StudyError` with line and column for what is not as expected.
    """
    table = read_foreign_csv(path, REMEDY)
    known = {name: name.strip().lower() for name in table.frame if name.strip().lower() in COLUMNS}
    if "ranks" not in known.values():
        raise StudyError(f"{path}: line 1: there is no column 'ranks'; the file has {', '.join(table.frame)}; {REMEDY}")
    frame = pd.DataFrame({ours: column_of(table, name, ours, path) for name, ours in known.items()})
    return series_of(frame, path, work, ranks_per_node, unit, origin, lines=table.lines)


def column_of(table: ForeignTable, name: str, ours: str, path: object) -> pd.Series:
    """A column of a file as `COLUMNS` has it; raises `StudyError` with the line of a cell that is not of its kind."""
    if ours in TEXTS:
        return table.frame[name]
    values = table.numbers(name)
    whole = ours in COUNTS
    wrong = table.frame[name].notna().to_numpy() & ~np.isfinite(values)
    wrong |= whole & (np.mod(values, 1, where=np.isfinite(values), out=np.ones(len(values))) != 0)
    if wrong.any():
        place = int(wrong.argmax())
        cell = table.frame[name].iloc[place]
        told = "an empty cell" if pd.isna(cell) else repr(str(cell)[:40])
        raise StudyError(
            f"{path}: line {table.lines[place]}, column {name!r}: {told} is not a {'whole' if whole else 'finite'} "
            f"number; {REMEDY}"
        )
    return pd.Series(values, table.frame.index)


def series_of(
    frame: pd.DataFrame,
    path: object,
    work: str,
    ranks_per_node: int | None = None,
    unit: str | None = None,
    origin: str = "imported",
    lines: list[int] | None = None,
) -> list[Series]:
    """The series of a table in memory; see `read_points`. path: for messages. lines: of each row in the file."""
    if work not in WORKS:
        raise StudyError(f"work: {work!r} is none of {', '.join(WORKS)}")
    if frame.empty:
        raise StudyError(f"{path}: there is no row; one per measured rank count is expected")
    quantity = _quantity(frame, path)
    places = lines or list(range(2, len(frame) + 2))
    _check_numbers(frame, quantity, path, places)
    stem = Path(str(path)).stem
    names = frame["series"].fillna(stem) if "series" in frame else pd.Series(stem, frame.index)
    groups = [(str(name), rows) for name, rows in frame.assign(_line=places).groupby(names, sort=True)]
    return [
        _one(name, _in_plain_units(rows, quantity, path, unit), quantity, work, ranks_per_node, origin)
        for name, rows in groups
    ]


def _quantity(frame: pd.DataFrame, path: object) -> str:
    known = [name for name in (*TIMES, THROUGHPUT) if name in frame]
    if len(known) != 1:
        what = f"the columns {' and '.join(known)}" if known else "no column with times"
        raise StudyError(f"{path}: line 1: {what}; exactly one of {', '.join((*TIMES, THROUGHPUT))} is expected")
    return known[0]


def _check_numbers(frame: pd.DataFrame, quantity: str, path: object, lines: list[int]) -> None:
    """Raise `StudyError` for the first number that no job has."""
    for name in (name for name in (*COUNTS, *NUMBERS) if name in frame):
        values = pd.to_numeric(frame[name], errors="coerce").to_numpy(float)
        is_given = ~np.isnan(values)
        wrong = is_given & ~((values >= LEAST) | ((values == 0) & (name in MAY_BE_ZERO)))
        wrong |= values > (MOST_RANKS if name in COUNTS else MOST)
        if name in (quantity, *COUNTS):
            wrong |= ~is_given
        if name == "nodes":
            wrong |= values > frame["ranks"].to_numpy(float)
        if wrong.any():
            place = int(wrong.argmax())
            value = frame[name].iloc[place]
            told = "is empty" if pd.isna(value) else f"{value:g}"
            raise StudyError(f"{path}: line {lines[place]}, column {name!r}: {told}; {_expected(name)}")


def _expected(name: str) -> str:
    if name == "nodes":
        return "a whole number from 1 to the row's ranks is expected"
    if name == "ranks":
        return f"a whole number from 1 to {MOST_RANKS} is expected"
    return f"a number {'of at least' if name in MAY_BE_ZERO else 'above'} 0 is expected"


def _in_plain_units(rows: pd.DataFrame, quantity: str, path: object, unit: str | None) -> pd.DataFrame:
    """The rows of a series with the column ``_unit``: what `units.throughput` says of each, None for times.

    Raises `StudyError` for a unit that is not known, for two kinds in a series, and for times in another unit.
    """
    rows = rows.reset_index(drop=True)
    column = rows["unit"] if "unit" in rows else pd.Series(None, rows.index, dtype=object)
    named = column.dropna().unique()
    column = column.where(column.notna(), named[0] if len(named) == 1 else unit if unit is not None else np.nan)
    found: list[units.Throughput | None] = []
    own = rows["unit"].notna() if "unit" in rows else [False] * len(rows)
    for text, line, is_own in zip(column, rows["_line"], own, strict=True):
        place = f"{path}: line {line}, column 'unit'" if is_own else "unit (--unit)"
        if pd.isna(text):
            found.append(None)
        elif quantity != THROUGHPUT:
            if units.time_in_seconds(text) not in (None, 1.0):
                raise StudyError(f"{place}: {text!r}, but {quantity} is in seconds; convert the numbers")
            found.append(None)
        else:
            try:
                found.append(units.throughput(text))
            except ValueError as error:
                raise StudyError(f"{place}: {error}") from None
    items = {each.item for each in found if each}
    if len(items) > 1 or (items and None in found):
        what = " and ".join(sorted(items)) if len(items) > 1 else "no unit in some rows"
        raise StudyError(f"{path}: column 'unit': one series has {what}; one unit is expected (column series)")
    return rows.assign(_unit=found)


def _one(name: str, rows: pd.DataFrame, quantity: str, work: str, ranks_per_node: int | None, origin: str) -> Series:
    per_node, notes = _ranks_of_a_node(rows, ranks_per_node)
    times, same_work, told = _times(rows, quantity, work, per_node)
    energy = rows["energy_j"] * same_work if "energy_j" in rows else np.nan
    energy = rows["power_w"] * times if "energy_j" not in rows and "power_w" in rows else energy
    known = rows.assign(time=times, energy_j=energy)
    for column in ("nodes", "load_s", "time_std"):
        known[column] = rows.get(column, np.nan)
    known["time_std"] *= same_work
    points = pd.DataFrame([_point(ranks, group) for ranks, group in known.groupby("ranks", sort=True)])
    notes = [*told, *_scattered(points), *notes]
    return Series(name, quantity, work, points, per_node, origin, notes)


def _ranks_of_a_node(rows: pd.DataFrame, given: int | None) -> tuple[float | None, list[str]]:
    """The ranks of a full node, None if unknown, and what is told about it."""
    if "nodes" not in rows or rows["nodes"].isna().all():
        if given:
            return float(given), []
        return None, ["the ranks of a node are not known, so 1, 4 and 8 are averaged over; give --ranks-per-node"]
    full = float(np.ceil((rows["ranks"] / rows["nodes"]).max()))
    sparse = rows[rows["nodes"] > np.ceil(rows["ranks"] / full)]
    notes = (
        [f"the column nodes has up to {full:g} ranks of a node, so --ranks-per-node {given} is not used"]
        if given and given != full
        else []
    )
    if len(sparse):
        first = sparse.iloc[0]
        notes.append(
            f"{first['ranks']:.0f} ranks were on {first['nodes']:.0f} nodes, though {full:g} fit on one: it is treated "
            "as on full nodes"
        )
    return full, notes


def _scattered(points: pd.DataFrame) -> Iterator[str]:
    """A sentence on the repeats that scatter most, if they scatter by more than `SCATTERED`."""
    spread = np.sqrt(points["scatter"] * points["repeats"])
    if spread.max() > SCATTERED:
        ranks = points["ranks"][spread.idxmax()]
        yield f"times on {counted(int(ranks), 'rank')} scatter by {spread.max():.0%}: measure again without disturbance"


def _point(ranks: float, rows: pd.DataFrame) -> dict[str, float]:
    """The mean of the repeats at one count. Their scatter adds to the usual noise of a point, which does not shrink."""
    time, number = float(rows["time"].mean()), len(rows)
    scatter = float(rows["time"].var(ddof=1)) / number / time**2 if number > 1 else 0.0
    given = float((rows["time_std"] ** 2).mean()) / time**2
    return {
        "ranks": float(ranks),
        "nodes": float(rows["nodes"].max()),
        "time": time,
        "scatter": scatter if np.isnan(given) else max(scatter, given / number),
        "repeats": number,
        "load_s": float(rows["load_s"].mean()),
        "energy_j": float(rows["energy_j"].mean()),
    }


def _times(
    rows: pd.DataFrame, quantity: str, work: str, per_node: float | None
) -> tuple[pd.Series, pd.Series, list[str]]:
    """Times of the same work in all rows; by which factor measured times became these; and what is told about it."""
    batch = rows["batch_size"] if "batch_size" in rows else pd.Series(np.nan, rows.index)
    is_one = batch.notna().all() and batch.nunique() == 1
    told = list(_changed_batch(rows, quantity))
    one = pd.Series(1.0, rows.index)
    if quantity == "time_per_step_s" and batch.notna().all() and not is_one:
        factor = batch[rows["ranks"].idxmin()] / batch
        return rows[quantity] * factor, factor, told
    if quantity != THROUGHPUT:
        return rows[quantity].astype(float), one, told
    unit = rows["_unit"].iloc[0]
    if unit is None:
        told.append("the unit of the throughput is not given; samples/s of all ranks together is assumed")
    nodes = rows.get("nodes", np.ceil(rows["ranks"] / (per_node or np.nan)))
    of_all = {None: 1.0, "all": 1.0, "rank": rows["ranks"], "node": nodes}
    owners = rows["_unit"].map(lambda each: each.per if each else None)
    many = sum((of_all[owner] * (owners == owner) for owner in owners.unique() if owner), 0.0 if unit else 1.0)
    seconds = rows["_unit"].map(lambda each: each.seconds if each else 1.0).astype(float)
    whole = rows["throughput"] * many / seconds
    if whole.isna().any():
        raise StudyError("unit per node: the nodes are not known; add a column nodes or give --ranks-per-node")
    if unit is not None and unit.is_steps:
        return 1 / whole, one, told
    samples = batch if is_one else one
    return (samples if work == "fixed" else samples * rows["ranks"]) / whole, one, told


def _changed_batch(rows: pd.DataFrame, quantity: str) -> Iterator[str]:
    if "batch_size" not in rows or rows["batch_size"].nunique() == 0:
        return
    if rows["batch_size"].isna().any():
        yield "some rows have no batch_size, so it is not used"
    elif rows["batch_size"].nunique() > 1:
        sizes = rows.groupby("ranks")["batch_size"].first()
        told = ", ".join(f"{size:g} on {ranks:.0f}" for ranks, size in sizes.items())
        what = {
            "time_per_step_s": f"each time was divided by its batch and is that of a batch of {sizes.iloc[0]:g}",
            THROUGHPUT: "times are those of one sample",
        }.get(quantity, "and with it the number of steps: times are not quite alike")
        yield f"the batch size changes with the ranks ({told}): {what}"
