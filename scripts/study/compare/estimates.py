"""Estimates from runs that were made interleaved: ratios, differences and slopes, paired within blocks.

Changes over time (another job, a clock rate) affect all runs of a block alike, so their ratio is much less uncertain
than the ratio of two means. This holds only if the blocks ran one after the other.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from study.compare import failed_runs, likeness
from study.core import statistics
from study.core.statistics import (
    ERROR_PER_SIDE,
    ROUNDING,
    LogSample,
    ratio_of_means,
    sample_of_logarithms,
    summarize,
    worth_of_pairs,
)
from study.core.wording import alike_blocks, counted
from study.records import overlap
from study.records.names import runs_of
from study.records.power import has_no_mean
from study.records.tidy import QUALITY

PAIRED, UNPAIRED = "paired", "unpaired"


@dataclass(frozen=True)
class Estimate:
    """What blocks say about arms: a ratio, a difference or a slope, with its 95 % interval.

    Args:
        value: the estimate; NaN without a block. A ratio is the geometric mean of the blocks' ratios.
        low, high: ends of the interval (Student's t, on the logarithms for a ratio, of as many blocks as they are
            worth); NaN with fewer than two blocks, or unpaired. Infinite where the blocks leave the value open.
        blocks: number of blocks in it.
        pairing: `PAIRED` if the blocks ran one after the other, else `UNPAIRED`: one arm was added later, and the value
            includes the drift of the machine. None without a block, and where the order of the blocks does not matter.
        worth: how many independent blocks they are worth, see `study.core.statistics.independent_number`; NaN where
            there is no interval.
        deviation: standard deviation of the logarithms of the blocks' ratios; NaN where there is no interval.
        left_out: {block: why it is not compared}, see `study.compare.likeness`.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    blocks: int = 0
    pairing: str | None = None
    worth: float = math.nan
    deviation: float = math.nan
    left_out: Mapping[Any, str] = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The value and the ends of its interval."""
        return self.value, self.low, self.high

    @property
    def has_interval(self) -> bool:
        """Whether the value and both ends are finite, so that there can be a verdict."""
        return all(map(math.isfinite, self.numbers))

    @property
    def sample(self) -> LogSample:
        """The blocks' ratios by their logarithms, for a test."""
        return LogSample(self.worth, math.log(self.value), self.deviation)

    @property
    def unlike(self) -> str | None:
        """Column ``blocks_unlike``: the blocks that are not compared, ``2: why; 5: why``; None if there are none."""
        return "; ".join(f"{block}: {why}" for block, why in self.left_out.items()) or None

    @property
    def alike(self) -> str | None:
        """That the interval counts the blocks as fewer, in words; None if it counts all of them."""
        told = "" if math.isnan(self.low) else alike_blocks(self.blocks, self.worth)
        return f"{counted(self.blocks, 'block')} {told}" if told else None

    def convert(self, function: Callable[[float], float]) -> "Estimate":
        """The estimate of a monotonic function of the value, such as a speedup of a ratio of times."""
        value, *ends = map(function, self.numbers)
        low, high = sorted(ends) if not any(map(math.isnan, ends)) else ends
        return dataclasses.replace(self, value=value, low=low, high=high)

    def without_interval(self) -> "Estimate":
        """The estimate where its interval would be wrong, such as one of survivors."""
        return dataclasses.replace(self, low=math.nan, high=math.nan)


def describe_fewer_blocks(ratios: Mapping[str, Estimate]) -> str | None:
    """Column ``blocks_alike``: which intervals of a row count their blocks as fewer; None if none does.

    ratios: by the name of the row's column.
    """
    told = {name: each.alike for name, each in ratios.items() if each.alike}
    return "; ".join(f"{name}: {why}" for name, why in told.items()) or None


def estimate_ratio(one: pd.DataFrame, other: pd.DataFrame, measure: str, free: Collection[str] = ()) -> Estimate:
    """The ratio ``one`` / ``other`` of ``measure``; none of measured and modelled power.

    Blocks that are not alike are left out, see `study.compare.likeness.explain_left_out_blocks`.

    Args:
        one: rows of the tidy table of runs, one per block (columns block, started_wall_ns, session).
        other: likewise, for the denominator.
        measure: a column.
        free: columns in which the two may differ within a block.
    """
    one, other = (_narrow(each, measure) for each in (one, other))
    if "power_source" in one and "power_source" in other and has_no_mean(pd.concat([one, other]), measure):
        return Estimate()
    used, why = _alike([_good(one, measure), _good(other, measure)], free, [measure])
    if used[0].empty:
        return Estimate(left_out=why)
    blocks = len(used[0])
    sample = sample_of_ratios(*(each[measure].to_numpy(float) for each in used))
    if not _interleaved(used):
        return Estimate(sample.middle, blocks=blocks, pairing=UNPAIRED, left_out=why)
    low, high = sample.interval(ERROR_PER_SIDE) if blocks > 1 else (math.nan, math.nan)
    return Estimate(sample.middle, low, high, blocks, PAIRED, sample.n, sample.deviation, why)


def sample_of_ratios(one: np.ndarray, other: np.ndarray) -> LogSample:
    """The ratios ``one`` / ``other`` by their logarithms. one, other: a value per block, in the blocks' order."""
    return sample_of_logarithms(_without_rounding(np.log(one / other), 1.0))


def estimate_difference(
    one: pd.DataFrame, other: pd.DataFrame, measure: str, error: float = ERROR_PER_SIDE
) -> Estimate:
    """The mean difference ``one`` - ``other`` within blocks, which have the same seeds, and its interval (Student's t).

    What follows from the seeds, such as a loss, and not from what the machine did meanwhile, needs no interleaved
    blocks and has no pairing. No interval with one block.

    Args:
        one: as for `estimate_ratio`.
        other: likewise, what is subtracted.
        measure: a column.
        error: the probability with which the interval fails on each side.
    """
    differences, left_out = compute_differences(one, other, measure)
    sample = summarize(differences, error)
    found = Estimate(sample.mean, sample.mean - sample.ci95, sample.mean + sample.ci95, sample.n, left_out=left_out)
    if measure in QUALITY or not sample.n:
        return found
    used = (each[each["block"].isin(differences.index)] for each in (one, other))
    found = dataclasses.replace(found, pairing=PAIRED if is_interleaved(*used) else UNPAIRED)
    return found if found.pairing == PAIRED else found.without_interval()


def compute_differences(one: pd.DataFrame, other: pd.DataFrame, measure: str) -> tuple[pd.Series, dict[Any, str]]:
    """``one`` - ``other`` of the successful runs of each block that both have, and {block: why it is left out}.

    Of what follows from the seeds, only blocks are left out whose runs are not alike, such as in their data or
    libraries: neither a host nor what else it did changes a loss.
    """
    arms = [index_by_block(each[each["status"] == "ok"]) for each in (one, other)]
    values = statistics.difference(*(each[measure].astype(float) for each in arms)).dropna()
    arms = [each.loc[values.index] for each in map(_narrow_by_block, arms)]
    if values.empty:
        return values, {}
    if measure in QUALITY:
        left_out = likeness.explain_unlike_blocks(pd.concat(arms))
    else:
        left_out = likeness.explain_left_out_blocks(arms, columns=[measure])
    return values[~values.index.isin(list(left_out))], left_out


def index_by_block(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with their block as index; of several in a block, such as of two machines, the first."""
    return runs.drop_duplicates("block").set_index("block")


def estimate_slope(arms: Sequence[pd.DataFrame], along: str, measure: str, places: Sequence[float]) -> Estimate:
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
    used, _ = _alike(list(map(index_by_block, used)))
    common = list(used[0].index)
    if not common:
        return Estimate()
    kind = PAIRED if _interleaved(used) else UNPAIRED
    x, y = (np.array([each[column].astype(float) for each in used]) for column in (along, measure))
    found, low, high = slope_of_blocks(x, y, places)
    worth = worth_of_pairs(_weighted(y, places), _weighted(x, places), found)
    estimate = Estimate(found, low, high, len(common), kind, worth)
    return estimate if kind == PAIRED else estimate.without_interval()


def slope_of_blocks(along: np.ndarray, measure: np.ndarray, places: Sequence[float]) -> tuple[float, float, float]:
    """(slope, low, high) as in `estimate_slope`. along, measure: a row per arm, a column per block, in order."""
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
    used = [index_by_block(one), index_by_block(other)]
    common = used[0].index.intersection(used[1].index)
    return _interleaved([each.loc[common] for each in used])


def compare_rows(runs: pd.DataFrame, one: str, other: str, measure: str, judged: bool = False) -> Estimate:
    """The ratio of two rows of a table.

    one, other: their ``records``. runs: the tidy table of runs. judged: whether a verdict follows from the interval;
    then there is none where the better one failed more often.
    """
    arms = {"one": runs_of(runs, one), "other": runs_of(runs, other)}
    found = estimate_ratio(arms["one"], arms["other"], measure)
    return without_survivors(found, arms, measure) if judged and one != other else found


def without_survivors(
    found: Estimate, arms: Mapping[Any, pd.DataFrame], measure: str, no_effect: float = 1.0
) -> Estimate:
    """The estimate without its interval if that is one of survivors: the better arm failed more often.

    arms: the two that are compared, in the order of the estimate. no_effect: the value of arms that do not differ.
    """
    more_is_better, best = failed_runs.find_better_direction(measure), None
    if more_is_better and found.blocks:
        first, second = arms
        best = first if (found.value - no_effect) * more_is_better > 0 else second
    return found.without_interval() if failed_runs.explain_survivors(arms, best, [measure]) else found


def _good(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The successful runs by block."""
    return index_by_block(runs[(runs["status"] == "ok") & (runs[measure] > 0)])


def _narrow_by_block(arm: pd.DataFrame) -> pd.DataFrame:
    return arm[[name for name in arm if name in likeness.READ]]


def _narrow(runs: pd.DataFrame, *measures: str) -> pd.DataFrame:
    """The columns that a comparison reads: the others, which are hundreds, would be copied several times."""
    read = dict.fromkeys(("block", "status", "power_source", *measures, *likeness.READ))
    return runs[[name for name in read if name in runs]]


def _alike(
    arms: Sequence[pd.DataFrame], free: Collection[str] = (), columns: Collection[str] = ()
) -> tuple[list[pd.DataFrame], dict[Any, str]]:
    """The blocks of all arms that can be compared, and why the others cannot. arms: rows by block."""
    common = sorted(set.intersection(*(set(each.index) for each in arms)))
    used = [each.loc[common] for each in arms]
    why = likeness.explain_left_out_blocks(used, free, columns) if common else {}
    return [each[~each.index.isin(list(why))] for each in used], why


def _interleaved(arms: Sequence[pd.DataFrame]) -> bool:
    """Whether each block is of one session and ended before the next one began. arms: rows by block.

    A run ends its duration after its start; see `study.compare.overlap.compute_run_spans` for whose clock counts.
    """
    rows = pd.concat(arms)
    if rows.empty:
        return True
    if (rows.groupby(level=0)["session"].nunique() > 1).any():
        return False
    spans = overlap.compute_run_spans(rows.reset_index())
    blocks = spans.groupby(rows.index.to_numpy())
    ordered = pd.DataFrame(
        {"first": blocks["begin"].min(), "last": blocks["begin"].max(), "end": blocks["end"].max()}
    ).sort_values("first")
    later = ordered["first"].iloc[1:].to_numpy()
    return bool(((ordered["last"].iloc[:-1] < later) & (ordered["end"].iloc[:-1] <= later)).all())
