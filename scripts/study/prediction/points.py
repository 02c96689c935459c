"""Points that anybody has: time, or throughput, against ranks in a CSV file. One series is one job at several counts.

Times are those of a step, an epoch or a run. A throughput becomes the time of ``batch_size`` samples of each rank, or
of all ranks together where these share a fixed work; without a batch size, of one sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from study.core.csv_files import FINITE, TEXT, WHOLE, lines_of_rows, read_csv
from study.core.errors import StudyError
from study.prediction.series_model import LEAST_COUNTS, SeriesModel, fit_series

WORKS = ("fixed", "per_rank", "epochs")
TIMES = ("time_per_step_s", "time_per_epoch_s", "runtime_s")
THROUGHPUT = "throughput"
NUMBERS = (*TIMES, THROUGHPUT, "batch_size", "gradient_mb", "load_s", "energy_j", "power_w", "time_std", "repeat")
MAY_BE_ZERO = ("load_s", "time_std", "repeat")
COUNTS = ("ranks", "nodes")
TEXTS = ("series", "unit")
REMEDY = "correct the file"
LEAST, MOST = 1e-100, 1e100  # of a number: their products and squares are still numbers
MOST_RANKS = 10**9
PER_RANK_UNITS = ("/gpu", "/rank", "/device", "/s/accelerator")


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
    kinds = {**dict.fromkeys(NUMBERS, FINITE), **dict.fromkeys(COUNTS, WHOLE), **dict.fromkeys(TEXTS, TEXT)}
    frame = read_csv(path, {"ranks": WHOLE}, others=kinds.get, remedy=REMEDY)
    return series_of(frame, path, work, ranks_per_node, unit, origin, lines=lines_of_rows(path))


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
    _check_numbers(frame, quantity, path, lines or list(range(2, len(frame) + 2)))
    stem = Path(str(path)).stem
    names = frame["series"].fillna(stem) if "series" in frame else pd.Series(stem, frame.index)
    return [
        _one(str(name), rows.reset_index(drop=True), quantity, work, ranks_per_node, unit, origin)
        for name, rows in frame.groupby(names, sort=True)
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


def _one(
    name: str, rows: pd.DataFrame, quantity: str, work: str, ranks_per_node: int | None, unit: str | None, origin: str
) -> Series:
    notes: list[str] = []
    times = _times(rows, quantity, work, unit, notes)
    energy = rows["energy_j"] if "energy_j" in rows else rows["power_w"] * times if "power_w" in rows else np.nan
    known = rows.assign(time=times, energy_j=energy)
    for column in ("nodes", "load_s", "time_std"):
        known[column] = rows.get(column, np.nan)
    points = pd.DataFrame([_point(ranks, group) for ranks, group in known.groupby("ranks", sort=True)])
    notes += _changed_batch(rows)
    ratio = (points["ranks"] / points["nodes"]).max()
    per_node = None if np.isnan(ratio) else float(np.ceil(ratio))
    per_node = per_node or (float(ranks_per_node) if ranks_per_node else None)
    if per_node is None:
        notes.append("the ranks of a node are not known, so 1, 4 and 8 are averaged over; give --ranks-per-node")
    return Series(name, quantity, work, points, per_node, origin, notes)


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


def _times(rows: pd.DataFrame, quantity: str, work: str, unit: str | None, notes: list[str]) -> pd.Series:
    if quantity != THROUGHPUT:
        return rows[quantity].astype(float)
    named = rows["unit"].dropna().unique() if "unit" in rows else []
    unit = str(named[0]) if len(named) else unit
    if unit is None:
        unit = "samples/s"
        notes.append("the unit of the throughput is not given; samples/s of all ranks together is assumed")
    whole = rows["throughput"].astype(float)
    if any(unit.lower().replace("per ", "/").replace(" ", "").endswith(end) for end in PER_RANK_UNITS):
        whole = whole * rows["ranks"]
    batch = rows["batch_size"] if "batch_size" in rows else pd.Series(1.0, rows.index)
    if work == "fixed":
        shared = float(batch.iloc[0]) if batch.nunique() == 1 else 1.0
        return shared / whole
    return batch.fillna(1.0).astype(float) * rows["ranks"] / whole


def _changed_batch(rows: pd.DataFrame) -> Iterator[str]:
    if "batch_size" in rows and rows["batch_size"].nunique() > 1:
        sizes = rows.groupby("ranks")["batch_size"].first()
        told = ", ".join(f"{size:g} on {ranks:g}" for ranks, size in sizes.items())
        yield f"the batch size changes with the ranks ({told}), and with it the number of steps: times are not alike"
