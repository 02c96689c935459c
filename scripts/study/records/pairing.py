"""Ratios and slopes of experiments that were run interleaved: paired within blocks.

Changes over time (another job, a clock rate) affect all runs of a block alike, so their ratio is much less uncertain
than the ratio of two means. This holds only if the blocks ran one after the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from study.core.statistics import LogSample, student, summarize
from study.records.names import runs_of
from study.records.power import has_no_mean

PAIRED, UNPAIRED = "paired", "unpaired"
ERROR = 0.025  # on each side of an interval
_WHEN = ["started_wall_ns", "session"]


@dataclass(frozen=True)
class Ratio:
    """The ratio of two experiments' values.

    Args:
        blocks: number of blocks in which both have a value.
        ratio: geometric mean of the blocks' ratios; NaN without a block.
        low, high: its 95 % interval (Student's t on the logarithms); NaN with fewer than two blocks, or unpaired.
        pairing: `PAIRED` if the blocks ran one after the other, else `UNPAIRED`: one arm was added later, and the ratio
            includes the drift of the machine.
        deviation: standard deviation of the logarithms of the blocks' ratios; NaN where there is no interval.
    """

    blocks: int
    ratio: float
    low: float
    high: float
    pairing: str | None
    deviation: float = math.nan

    @property
    def sample(self) -> LogSample:
        """The blocks' ratios by their logarithms, for a test."""
        return LogSample(self.blocks, math.log(self.ratio), self.deviation)


@dataclass(frozen=True)
class Slope:
    """How much a quantity changes for each unit of another, within blocks.

    Args:
        blocks: number of blocks in which all arms have a value.
        slope: by least squares with a constant of each block's own; NaN if the other quantity never differs in a block.
        low, high: its 95 % interval (Student's t); NaN with too few blocks, or unpaired.
        pairing: as in `Ratio`.
    """

    blocks: int
    slope: float
    low: float
    high: float
    pairing: str | None


def ratio(one: pd.DataFrame, other: pd.DataFrame, measure: str) -> Ratio:
    """The ratio ``one`` / ``other`` of ``measure``; none of measured and modelled power.

    Args:
        one: rows of the tidy table of runs, one per block (columns block, started_wall_ns, session).
        other: likewise, for the denominator.
        measure: a column.
    """
    if "power_source" in one and "power_source" in other and has_no_mean(pd.concat([one, other]), measure):
        return Ratio(0, math.nan, math.nan, math.nan, None)
    pairs = _good(one, measure).join(_good(other, measure), lsuffix="_one", rsuffix="_other", how="inner").sort_index()
    if pairs.empty:
        return Ratio(0, math.nan, math.nan, math.nan, None)
    logarithms = np.log(pairs[f"{measure}_one"] / pairs[f"{measure}_other"])
    sample = summarize(logarithms)
    if not _interleaved([pairs[[f"{name}_{arm}" for name in _WHEN]] for arm in ("one", "other")]):
        return Ratio(len(pairs), math.exp(sample.mean), math.nan, math.nan, UNPAIRED)
    low, high = sample.mean - sample.ci95, sample.mean + sample.ci95
    deviation = float(logarithms.std(ddof=1))
    return Ratio(len(pairs), math.exp(sample.mean), math.exp(low), math.exp(high), PAIRED, deviation)


def slope(arms: Sequence[pd.DataFrame], along: str, measure: str) -> Slope:
    """How much ``measure`` changes for each unit of ``along`` within blocks, over the blocks that all arms have.

    The within estimator of panel data: both columns less their means in the block, then least squares through the
    origin. Its residuals have as many degrees of freedom as there are values, less one for each block and the slope.

    Args:
        arms: of each experiment, rows of the tidy table of runs, one per block (columns as for `ratio`).
        along: a column.
        measure: a column.
    """
    used = [each[each["status"] == "ok"].dropna(subset=[along, measure]) for each in arms]
    used = [each.drop_duplicates("block").set_index("block") for each in used]
    common = sorted(set.intersection(*(set(each.index) for each in used)))
    if not common:
        return Slope(0, math.nan, math.nan, math.nan, None)
    used = [each.loc[common] for each in used]
    kind = PAIRED if _interleaved([each[_WHEN] for each in used]) else UNPAIRED
    x, y = (np.array([each[column].astype(float) for each in used]) for column in (along, measure))  # arm, block
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    spread = float((x**2).sum())
    if spread == 0:
        return Slope(len(common), math.nan, math.nan, math.nan, kind)
    found = float((x * y).sum()) / spread
    freedom = y.size - len(common) - 1
    if freedom < 1 or kind == UNPAIRED:
        return Slope(len(common), found, math.nan, math.nan, kind)
    half = student(freedom, ERROR) * math.sqrt(float(((y - found * x) ** 2).sum()) / freedom / spread)
    return Slope(len(common), found, found - half, found + half, kind)


def is_interleaved(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether the common blocks of two experiments ran one after the other. one, other: as for `ratio`."""
    used = [each.drop_duplicates("block").set_index("block") for each in (one, other)]
    common = used[0].index.intersection(used[1].index)
    return _interleaved([each.loc[common, _WHEN] for each in used])


def between(runs: pd.DataFrame, one: str, other: str, measure: str) -> Ratio:
    """The ratio of two rows of a table. one, other: their ``records``. runs: the tidy table of runs."""
    return ratio(runs_of(runs, one), runs_of(runs, other), measure)


def _good(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The successful runs by block; of several in a block, such as of two machines, the first."""
    good = runs[(runs["status"] == "ok") & (runs[measure] > 0)]
    return good.drop_duplicates("block").set_index("block")[[measure, *_WHEN]]


def _interleaved(arms: Sequence[pd.DataFrame]) -> bool:
    """Whether each block is of one session and ended before the next one began. arms: start and session by block."""
    starts, sessions = (pd.concat([each.iloc[:, column] for each in arms], axis=1).sort_index() for column in (0, 1))
    if (sessions.nunique(axis=1) > 1).any():
        return False
    return bool((starts.max(axis=1).iloc[:-1].to_numpy() < starts.min(axis=1).iloc[1:].to_numpy()).all())
