"""Ratios of two experiments that were run interleaved: paired within blocks.

Changes over time (another job, a clock rate) affect both runs of a block alike, so their ratio is much less uncertain
than the ratio of two means. This holds only if the blocks ran one after the other.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from study.core.statistics import summarize
from study.records.names import runs_of

PAIRED, UNPAIRED = "paired", "unpaired"


@dataclass(frozen=True)
class Ratio:
    """The ratio of two experiments' values.

    Args:
        blocks: number of blocks in which both have a value.
        ratio: geometric mean of the blocks' ratios; NaN without a block.
        low, high: its 95 % interval (Student's t on the logarithms); NaN with fewer than two blocks, or unpaired.
        pairing: `PAIRED` if the blocks ran one after the other, else `UNPAIRED`: one arm was added later, and the ratio
            includes the drift of the machine.
    """

    blocks: int
    ratio: float
    low: float
    high: float
    pairing: str | None


def ratio(one: pd.DataFrame, other: pd.DataFrame, measure: str) -> Ratio:
    """The ratio ``one`` / ``other`` of ``measure``.

    Args:
        one: rows of the tidy table of runs, one per block (columns block, started_wall_ns, session).
        other: likewise, for the denominator.
        measure: a column.
    """
    pairs = _good(one, measure).join(_good(other, measure), lsuffix="_one", rsuffix="_other", how="inner").sort_index()
    if pairs.empty:
        return Ratio(0, math.nan, math.nan, math.nan, None)
    logarithms = np.log(pairs[f"{measure}_one"] / pairs[f"{measure}_other"])
    sample = summarize(logarithms)
    if not _interleaved(pairs):
        return Ratio(len(pairs), math.exp(sample.mean), math.nan, math.nan, UNPAIRED)
    low, high = sample.mean - sample.ci95, sample.mean + sample.ci95
    return Ratio(len(pairs), math.exp(sample.mean), math.exp(low), math.exp(high), PAIRED)


def between(runs: pd.DataFrame, one: str, other: str, measure: str) -> Ratio:
    """The ratio of two rows of a table. one, other: their ``records``. runs: the tidy table of runs."""
    return ratio(runs_of(runs, one), runs_of(runs, other), measure)


def _good(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The successful runs by block; of several in a block, such as of two machines, the first."""
    good = runs[(runs["status"] == "ok") & (runs[measure] > 0)]
    return good.drop_duplicates("block").set_index("block")[[measure, "started_wall_ns", "session"]]


def _interleaved(pairs: pd.DataFrame) -> bool:
    """Whether each block is of one session and ended before the next one began."""
    starts = pairs[["started_wall_ns_one", "started_wall_ns_other"]]
    if (pairs["session_one"] != pairs["session_other"]).any():
        return False
    return bool((starts.max(axis=1).iloc[:-1].to_numpy() < starts.min(axis=1).iloc[1:].to_numpy()).all())
