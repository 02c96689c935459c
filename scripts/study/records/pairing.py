"""Ratios and slopes of experiments that were run interleaved: paired within blocks.

Changes over time (another job, a clock rate) affect all runs of a block alike, so their ratio is much less uncertain
than the ratio of two means. This holds only if the blocks ran one after the other.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from study.core import statistics
from study.core.statistics import (
    ERROR_PER_SIDE,
    ROUNDING,
    LogSample,
    ratio_of_means,
    sample_of_logarithms,
    student,
    worth_of_pairs,
)
from study.core.wording import alike_blocks, counted
from study.records import comparable
from study.records.names import runs_of
from study.records.power import has_no_mean

PAIRED, UNPAIRED = "paired", "unpaired"


@dataclass(frozen=True)
class Ratio:
    """The ratio of two experiments' values.

    Args:
        blocks: number of blocks in which both have a value.
        ratio: geometric mean of the blocks' ratios; NaN without a block.
        low, high: its 95 % interval (Student's t on the logarithms, of as many blocks as they are worth); NaN with
            fewer than two blocks, or unpaired.
        pairing: `PAIRED` if the blocks ran one after the other, else `UNPAIRED`: one arm was added later, and the ratio
            includes the drift of the machine.
        deviation: standard deviation of the logarithms of the blocks' ratios; NaN where there is no interval.
        left_out: {block: why it is not compared}, see `study.records.comparable`.
        worth: how many independent blocks they are worth, see `study.core.statistics.independent_number`.
    """

    blocks: int
    ratio: float
    low: float
    high: float
    pairing: str | None
    deviation: float = math.nan
    left_out: dict[Any, str] = field(default_factory=dict)
    worth: float = math.nan

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The ratio and the ends of its interval."""
        return self.ratio, self.low, self.high

    @property
    def sample(self) -> LogSample:
        """The blocks' ratios by their logarithms, for a test."""
        return LogSample(self.worth, math.log(self.ratio), self.deviation)

    @property
    def unlike(self) -> str | None:
        """Column ``blocks_unlike``: the blocks that are not compared, ``2: why; 5: why``; None if there are none."""
        return "; ".join(f"{block}: {why}" for block, why in self.left_out.items()) or None

    @property
    def alike(self) -> str | None:
        """That the interval counts the blocks as fewer, in words; None if it counts all of them."""
        told = "" if math.isnan(self.low) else alike_blocks(self.blocks, self.worth)
        return f"{counted(self.blocks, 'block')} {told}" if told else None


def blocks_alike(ratios: Mapping[str, Ratio]) -> str | None:
    """Column ``blocks_alike``: which intervals of a row count their blocks as fewer; None if none does.

    ratios: by the name of the row's column.
    """
    told = {name: each.alike for name, each in ratios.items() if each.alike}
    return "; ".join(f"{name}: {why}" for name, why in told.items()) or None


@dataclass(frozen=True)
class Slope:
    """How much a quantity changes for each unit of another, within blocks.

    Args:
        blocks: number of blocks in which all arms have a value.
        slope: NaN if the other quantity never differs in a block.
        low, high: its 95 % interval; NaN with fewer than two blocks, or unpaired. Infinite if the other quantity cannot
            be shown to change along the arms.
        pairing: as in `Ratio`.
        worth: as in `Ratio`.
    """

    blocks: int
    slope: float
    low: float
    high: float
    pairing: str | None
    worth: float = math.nan


def ratio(one: pd.DataFrame, other: pd.DataFrame, measure: str, free: Collection[str] = ()) -> Ratio:
    """The ratio ``one`` / ``other`` of ``measure``; none of measured and modelled power.

    Blocks that are not alike are left out, see `study.records.comparable.left_out`.

    Args:
        one: rows of the tidy table of runs, one per block (columns block, started_wall_ns, session).
        other: likewise, for the denominator.
        measure: a column.
        free: columns in which the two may differ within a block.
    """
    one, other = (_narrow(each, measure) for each in (one, other))
    if "power_source" in one and "power_source" in other and has_no_mean(pd.concat([one, other]), measure):
        return Ratio(0, math.nan, math.nan, math.nan, None)
    used, why = _alike([_good(one, measure), _good(other, measure)], free, [measure])
    if used[0].empty:
        return Ratio(0, math.nan, math.nan, math.nan, None, left_out=why)
    blocks = len(used[0])
    sample = ratio_of_blocks(*(each[measure].to_numpy(float) for each in used))
    if not _interleaved(used):
        return Ratio(blocks, sample.middle, math.nan, math.nan, UNPAIRED, left_out=why)
    low, high = sample.interval(ERROR_PER_SIDE) if blocks > 1 else (math.nan, math.nan)
    return Ratio(blocks, sample.middle, low, high, PAIRED, sample.deviation, why, sample.n)


def ratio_of_blocks(one: np.ndarray, other: np.ndarray) -> LogSample:
    """The ratios ``one`` / ``other`` by their logarithms. one, other: a value per block, in the blocks' order."""
    return sample_of_logarithms(_without_rounding(np.log(one / other), 1.0))


def difference(
    one: pd.DataFrame, other: pd.DataFrame, measure: str, error: float = ERROR_PER_SIDE
) -> tuple[float, float, float]:
    """The mean difference ``one`` - ``other`` within blocks, which have the same seeds, and its interval (Student's t).

    For what follows from the seeds, such as a loss, and not from what the machine did meanwhile: the blocks need not be
    interleaved. Blocks are left out as in `differences`. NaN without a common block; no interval with one.

    Args:
        one: as for `ratio`.
        other: likewise, what is subtracted.
        measure: a column.
        error: the probability with which the interval fails on each side.
    """
    found = differences(one, other, measure).dropna()
    if found.empty:
        return math.nan, math.nan, math.nan
    mean, n = float(found.mean()), len(found)
    half = student(n - 1, error) * float(found.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return mean, mean - half, mean + half


def differences(one: pd.DataFrame, other: pd.DataFrame, measure: str) -> pd.Series:
    """``one`` - ``other`` of the successful runs of each block; NaN where one of the two has none.

    Also in `unlike_blocks`.
    """
    values = [by_block(each[each["status"] == "ok"])[measure] for each in (one, other)]
    found = statistics.difference(*(each.astype(float) for each in values))
    return found.mask(found.index.isin(unlike_blocks(one, other)))


def unlike_blocks(one: pd.DataFrame, other: pd.DataFrame) -> list[Any]:
    """The blocks whose successful runs are not alike, such as in their data or libraries, wherever they ran.

    For what follows from the seeds: neither a host nor what else it did changes a loss. See
    `study.records.comparable.unlike`; arguments as for `ratio`.
    """
    arms = (_narrow(each) for each in (one, other))
    return comparable.unlike_blocks(pd.concat([by_block(each[each["status"] == "ok"]) for each in arms]))


def by_block(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with their block as index; of several in a block, such as of two machines, the first."""
    return runs.drop_duplicates("block").set_index("block")


def slope(arms: Sequence[pd.DataFrame], along: str, measure: str, places: Sequence[float]) -> Slope:
    """How much ``measure`` changes for each unit of ``along`` between the arms, over the blocks that all arms have.

    In each block both columns are weighted with the arms' places, less their mean. The slope is the mean of one of
    these sums over that of the other, and only blocks are taken as independent (`ratio_of_means`). The places are known
    beforehand, so noise of ``along`` does not pull the slope to 0 (an instrumental variable). If ``along`` has no noise
    and the places are its values, this is the mean of the blocks' slopes by least squares, with Student's t.

    Args:
        arms: of each experiment, rows of the tidy table of runs, one per block (columns as for `ratio`).
        along: a column.
        measure: a column.
        places: of each arm a number, in the order in which ``along`` rises or falls.
    """
    used = [each[each["status"] == "ok"].dropna(subset=[along, measure]) for each in arms]
    used, _ = _alike(list(map(by_block, used)))
    common = list(used[0].index)
    if not common:
        return Slope(0, math.nan, math.nan, math.nan, None)
    kind = PAIRED if _interleaved(used) else UNPAIRED
    x, y = (np.array([each[column].astype(float) for each in used]) for column in (along, measure))
    found, low, high = slope_of_blocks(x, y, places)
    worth = worth_of_pairs(_weighted(y, places), _weighted(x, places), found)
    return Slope(len(common), found, *((low, high) if kind == PAIRED else (math.nan, math.nan)), kind, worth)


def slope_of_blocks(along: np.ndarray, measure: np.ndarray, places: Sequence[float]) -> tuple[float, float, float]:
    """`slope` and its interval. along, measure: a row per arm, a column per block, in their order; places: as there."""
    return ratio_of_means(_weighted(measure, places), _weighted(along, places), ERROR_PER_SIDE)


def _weighted(values: np.ndarray, places: Sequence[float]) -> Any:
    """Of each block the sum of its values by the arms' places, less their mean; values as for `slope_of_blocks`."""
    return (np.asarray(places, dtype=float) - np.mean(places)) @ _within_blocks(values)


def _within_blocks(values: np.ndarray) -> np.ndarray:
    """Values less their mean in the block; a row per arm, a column per block."""
    return _without_rounding(values - values.mean(axis=0), np.abs(values).max())


def _without_rounding(differences: np.ndarray, size: float) -> np.ndarray:
    """The differences of numbers of this size, with 0 for what is only the rounding of floats."""
    return np.where(np.abs(differences) <= ROUNDING * size, 0.0, differences)


def is_interleaved(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether the common blocks of two experiments ran one after the other. one, other: as for `ratio`."""
    used = [by_block(one), by_block(other)]
    common = used[0].index.intersection(used[1].index)
    return _interleaved([each.loc[common] for each in used])


def between(runs: pd.DataFrame, one: str, other: str, measure: str, judged: bool = False) -> Ratio:
    """The ratio of two rows of a table.

    one, other: their ``records``. runs: the tidy table of runs. judged: whether a verdict follows from the interval;
    then there is none where the better one failed more often.
    """
    arms = {"one": runs_of(runs, one), "other": runs_of(runs, other)}
    found, more_is_better = ratio(arms["one"], arms["other"], measure), comparable.better(measure)
    best = None
    if more_is_better and found.blocks:
        best = "one" if (found.ratio - 1) * more_is_better > 0 else "other"
    if not judged or one == other or not comparable.survivors_only(arms, best, [measure]):
        return found
    return replace(found, low=math.nan, high=math.nan)


def _good(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The successful runs by block."""
    return by_block(runs[(runs["status"] == "ok") & (runs[measure] > 0)])


def _narrow(runs: pd.DataFrame, *measures: str) -> pd.DataFrame:
    """The columns that a comparison reads: the others, which are hundreds, would be copied several times."""
    read = dict.fromkeys(("block", "status", "power_source", *measures, *comparable.READ))
    return runs[[name for name in read if name in runs]]


def _alike(
    arms: Sequence[pd.DataFrame], free: Collection[str] = (), columns: Collection[str] = ()
) -> tuple[list[pd.DataFrame], dict[Any, str]]:
    """The blocks of all arms that can be compared, and why the others cannot. arms: rows by block."""
    common = sorted(set.intersection(*(set(each.index) for each in arms)))
    used = [each.loc[common] for each in arms]
    why = comparable.left_out(used, free, columns) if common else {}
    return [each[~each.index.isin(list(why))] for each in used], why


def _interleaved(arms: Sequence[pd.DataFrame]) -> bool:
    """Whether each block is of one session and ended before the next one began. arms: rows by block.

    A run ends its duration after its start; see `study.records.comparable.times` for whose clock counts.
    """
    rows = pd.concat(arms)
    if rows.empty:
        return True
    if (rows.groupby(level=0)["session"].nunique() > 1).any():
        return False
    spans = comparable.times(rows.reset_index())
    blocks = spans.groupby(rows.index.to_numpy())
    ordered = pd.DataFrame(
        {"first": blocks["begin"].min(), "last": blocks["begin"].max(), "end": blocks["end"].max()}
    ).sort_values("first")
    later = ordered["first"].iloc[1:].to_numpy()
    return bool(((ordered["last"].iloc[:-1] < later) & (ordered["end"].iloc[:-1] <= later)).all())
