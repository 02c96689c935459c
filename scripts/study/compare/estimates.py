"""Estimates from runs that were made interleaved: ratios, differences and slopes, paired within blocks.

Changes over time (another job, a clock rate) affect all runs of a block alike, so their ratio is much less uncertain
than the ratio of two means. This holds only if the blocks ran one after the other, or each in one batch job. Where a
block's numbers of nodes had batch jobs of their own, the speeds of nodes and times are scatter in the interval.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from study.compare import failed_runs, likeness, references
from study.core import statistics
from study.core.statistics import (
    ERROR_PER_SIDE,
    ROUNDING,
    LogSample,
    compare_paired_means,
    count_independent_pairs,
    summarize,
    summarize_logarithms,
)
from study.core.wording import describe_alike_blocks, format_count
from study.records.names import runs_of
from study.records.power import has_no_mean
from study.records.tidy import QUALITY

PAIRED, UNPAIRED, OTHER_NODES = "paired", "unpaired", "other nodes"


@dataclass(frozen=True)
class Estimate:
    """What blocks say about arms: a ratio, a difference or a slope, with its 95 % interval.

    Args:
        value: the estimate; NaN without a block. A ratio is the geometric mean of the blocks' ratios.
        low, high: ends of the interval (Student's t, on the logarithms for a ratio, of as many blocks as they are
            worth); NaN with fewer than two blocks, or unpaired. Infinite where the blocks leave the value open.
        blocks: number of blocks in it.
        pairing: `PAIRED` if the blocks ran one after the other, or each in one batch job; `OTHER_NODES` if each number
            of nodes had a batch job of its own in each block; else `UNPAIRED`: one arm was added later, and the value
            includes the drift of the machine. None without a block, and where the order of the blocks does not matter.
        worth: how many independent blocks they are worth, see `study.core.statistics.count_independent`; NaN where
            there is no interval.
        deviation: standard deviation of the logarithms of the blocks' ratios; NaN where there is no interval.
        left_out: {block: why it is not compared}, see `study.compare.likeness`.
        possible: number of blocks that all arms have, with failed runs too.
        why_not: why there is no value, or no interval, though there are runs; else None.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    blocks: int = 0
    pairing: str | None = None
    worth: float = math.nan
    deviation: float = math.nan
    left_out: Mapping[Any, str] = field(default_factory=dict)
    possible: int = 0
    why_not: str | None = None

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The value and the ends of its interval."""
        return self.value, self.low, self.high

    def to_columns(self, name: str) -> dict[str, float]:
        """The numbers by the columns of a table: ``name``, ``name_low`` and ``name_high``."""
        return dict(zip((name, f"{name}_low", f"{name}_high"), self.numbers, strict=True))

    @property
    def has_interval(self) -> bool:
        """Whether the value and both ends are finite, so that there can be a verdict."""
        return all(map(math.isfinite, self.numbers))

    @property
    def has_enough_blocks(self) -> bool:
        """Whether its blocks are so many, also of the possible ones, that a verdict may follow."""
        return references.are_enough(self.blocks, self.possible)

    def find_side(self, low: float, high: float) -> int:
        """1 if the whole interval is above ``high``, -1 if it is below ``low``, else 0."""
        return 1 if self.low > high else -1 if self.high < low else 0

    def is_within(self, low: float, high: float) -> bool:
        """True if the whole interval is between these limits."""
        return low <= self.low and self.high <= high

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
        """A remark that the interval counts the blocks as fewer, ``6 blocks counted as 3.0``; None if it counts all."""
        words = "" if math.isnan(self.low) else describe_alike_blocks(self.blocks, self.worth)
        return f"{format_count(self.blocks, 'block')} {words}" if words else None

    def convert(self, function: Callable[[float], float]) -> "Estimate":
        """The estimate of a monotonic function of the value, such as a speedup of a ratio of times."""
        value, *ends = map(function, self.numbers)
        low, high = sorted(ends) if not any(map(math.isnan, ends)) else ends
        return dataclasses.replace(self, value=value, low=low, high=high)

    def drop_interval(self, why_not: str | None = None) -> "Estimate":
        """The estimate where its interval would be wrong, such as one of survivors."""
        return dataclasses.replace(self, low=math.nan, high=math.nan, why_not=why_not)


def describe_fewer_blocks(ratios: Mapping[str, Estimate]) -> str | None:
    """Column ``blocks_alike``: which intervals of a row count their blocks as fewer; None if none does.

    ratios: by the name of the row's column.
    """
    words = {name: ratio.alike for name, ratio in ratios.items() if ratio.alike}
    return "; ".join(f"{name}: {alike}" for name, alike in words.items()) or None


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
    used, left_out = _select_blocks([_index_good_runs(one, measure), _index_good_runs(other, measure)], [measure], free)
    for runs in (one, other):
        left_out |= dict.fromkeys(runs.loc[failed_runs.mark_unproven(runs), "block"], failed_runs.IN_BLOCK)
    rest = Estimate(left_out=left_out, possible=len(set(one["block"]) & set(other["block"])))
    if used[0].empty:
        return rest
    ratio = estimate_mean(sample_of_ratios(*(arm[measure].to_numpy(float) for arm in used)), len(used[0]))
    if (pairing := _find_pairing(used)) != UNPAIRED:
        return dataclasses.replace(ratio, pairing=pairing, left_out=left_out, possible=rest.possible)
    return dataclasses.replace(rest, value=ratio.value, blocks=ratio.blocks, pairing=UNPAIRED)


def estimate_mean(sample: LogSample, blocks: int, error: float = ERROR_PER_SIDE) -> Estimate:
    """The geometric mean of a sample of ``blocks`` values; no interval with fewer than two, or of an exact value.

    error: the probability with which the interval (Student's t) fails on each side.
    """
    low, high = sample.interval(error) if 1 < sample.n < math.inf else (math.nan, math.nan)
    return Estimate(sample.middle, low, high, blocks, None, sample.n, sample.deviation)


def estimate_ratio_of_means(one: Estimate, other: Estimate, error: float = ERROR_PER_SIDE) -> Estimate:
    """The ratio of two independent geometric means, which have no blocks in common (Welch's interval)."""
    numbers = statistics.compare_geometric_means(one.sample, other.sample, error)
    return Estimate(*numbers, one.blocks + other.blocks, UNPAIRED, one.worth + other.worth)


def sample_of_ratios(one: np.ndarray, other: np.ndarray) -> LogSample:
    """The ratios ``one`` / ``other`` by their logarithms. one, other: a value per block, in the blocks' order."""
    return summarize_logarithms(_remove_rounding(np.log(one / other), 1.0))


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
    arms = [_narrow(failed_runs.keep_proven(runs), measure).dropna(subset=[measure]) for runs in (one, other)]
    used, left_out = _select_blocks([index_by_block(arm) for arm in arms], [measure], follows_seeds=measure in QUALITY)
    sample = summarize(statistics.subtract(*(arm[measure].astype(float) for arm in used)), error)
    low, high = sample.mean - sample.ci95, sample.mean + sample.ci95
    possible = len(set(one["block"]) & set(other["block"]))
    difference = Estimate(sample.mean, low, high, sample.n, left_out=left_out, possible=possible)
    if measure in QUALITY or not sample.n:
        return difference
    return _drop_unpaired_interval(dataclasses.replace(difference, pairing=_find_pairing(used)))


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
        arms: of each experiment, rows of the tidy table of runs, one per block (columns as for `estimate_ratio`).
        along: a column.
        measure: a column.
        places: of each arm a number, in the order in which ``along`` rises or falls.
    """
    good = [failed_runs.keep_proven(runs).dropna(subset=[along, measure]) for runs in arms]
    used, left_out = _select_blocks([index_by_block(runs) for runs in good])
    possible = len(set.intersection(*(set(runs["block"]) for runs in arms)))
    if used[0].empty:
        return Estimate(left_out=left_out, possible=possible)
    x, y = (np.array([arm[column].astype(float) for arm in used]) for column in (along, measure))
    slope, low, high = slope_of_blocks(x, y, places)
    worth = count_independent_pairs(_weight_blocks(y, places), _weight_blocks(x, places), slope)
    pairing = _find_pairing(used)
    estimate = Estimate(slope, low, high, len(used[0]), pairing, worth, left_out=left_out, possible=possible)
    return _drop_unpaired_interval(estimate)


def slope_of_blocks(along: np.ndarray, measure: np.ndarray, places: Sequence[float]) -> tuple[float, float, float]:
    """(slope, low, high) as in `estimate_slope`. along, measure: a row per arm, a column per block, in order."""
    return compare_paired_means(_weight_blocks(measure, places), _weight_blocks(along, places), ERROR_PER_SIDE)


def _weight_blocks(values: np.ndarray, places: Sequence[float]) -> Any:
    """Sum of each block's values, weighted with the arms' places less their mean. values: as for `slope_of_blocks`."""
    return (np.asarray(places, dtype=float) - np.mean(places)) @ _center_blocks(values)


def _center_blocks(values: np.ndarray) -> np.ndarray:
    """Values less their mean in the block; a row per arm, a column per block."""
    return _remove_rounding(values - values.mean(axis=0), np.abs(values).max())


def _remove_rounding(differences: np.ndarray, size: float) -> np.ndarray:
    """The differences of numbers of this size, with 0 for what is only the rounding of floats."""
    return np.where(np.abs(differences) <= ROUNDING * size, 0.0, differences)


def compare_rows(runs: pd.DataFrame, one: str, other: str, measure: str, judged: bool = False) -> Estimate:
    """The ratio of two rows of a table.

    one, other: their ``records``. runs: the tidy table of runs. judged: whether a verdict follows from the interval;
    then there is none where the better one failed more often.
    """
    arms = {"one": runs_of(runs, one), "other": runs_of(runs, other)}
    ratio = estimate_ratio(arms["one"], arms["other"], measure)
    return drop_survivors_interval(ratio, arms, measure) if judged and one != other else ratio


def drop_survivors_interval(
    estimate: Estimate, arms: Mapping[Any, pd.DataFrame], measure: str, no_effect: float = 1.0
) -> Estimate:
    """The estimate without its interval if that is one of survivors: the better arm failed more often.

    Args:
        estimate: of the two arms.
        arms: in the order of the estimate.
        measure: the column that is compared.
        no_effect: the value of arms that do not differ.
    """
    why_not = explain_survivors(estimate, arms, failed_runs.find_better_direction(measure), [measure], no_effect)
    return estimate.drop_interval(why_not) if why_not else estimate


def explain_survivors(
    estimate: Estimate, arms: Mapping[Any, pd.DataFrame], more_is_better: int | None,
    columns: Collection[str] = (), no_effect: float = 1.0,
) -> str | None:  # fmt: skip
    """Why an estimate of two arms is one of survivors: the better one failed more often; None if it did not.

    more_is_better: 1, or -1 if less is; None where neither is known, and then both must fail equally often. arms,
    no_effect: as for `drop_survivors_interval`. columns: what is compared.
    """
    best = None
    if more_is_better and estimate.blocks:
        first, second = arms
        best = first if (estimate.value - no_effect) * more_is_better > 0 else second
    return failed_runs.explain_survivors(arms, best, columns)


def _index_good_runs(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The proven runs with a positive value, by block."""
    return index_by_block(failed_runs.keep_proven(runs[runs[measure] > 0]))


def _narrow(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The columns that a comparison reads: the others, which are hundreds, would be copied several times."""
    read = dict.fromkeys(("block", "status", "unproven", "power_source", measure, *likeness.READ))
    return runs[[name for name in read if name in runs]]


def _select_blocks(
    arms: Sequence[pd.DataFrame], columns: Collection[str] = (), free: Collection[str] = (), follows_seeds: bool = False
) -> tuple[list[pd.DataFrame], dict[Any, str]]:
    """The arms' rows in the blocks that can be compared, and {block: why it is left out}. arms: rows by block.

    Where all blocks were interrupted, such as if an arm was added later, they stay, and are `UNPAIRED`. follows_seeds:
    whether the quantity, such as a loss, is the same on any host and in any session.
    """
    common = sorted(set.intersection(*(set(arm.index) for arm in arms)))
    used = [arm.loc[common] for arm in arms]
    if follows_seeds:
        left_out = likeness.explain_unlike_blocks(pd.concat(used)) if common else {}
    else:
        left_out = likeness.explain_left_out_blocks(used, free, columns) if common else {}
        if len(left_out) == len(common) and likeness.INTERRUPTED in left_out.values():
            left_out = likeness.explain_left_out_blocks(used, free, columns, may_be_interrupted=True)
    return [arm[~arm.index.isin(list(left_out))] for arm in used], left_out


def _find_pairing(arms: Sequence[pd.DataFrame]) -> str:
    """`PAIRED`, `OTHER_NODES` or `UNPAIRED`, see `Estimate`. arms: rows by block."""
    rows = pd.concat(arms)
    if likeness.ran_in_turn(rows):
        return PAIRED
    if likeness.find_divided_blocks(rows):
        return UNPAIRED
    return PAIRED if rows["nodes"].nunique() == 1 else OTHER_NODES


def _drop_unpaired_interval(estimate: Estimate) -> Estimate:
    """The estimate, without an interval if it is of unpaired blocks."""
    return estimate.drop_interval() if estimate.pairing == UNPAIRED else estimate
