"""Two sets of results at one point, of two machines or of two versions of the code: their ratio."""

import dataclasses
import math

import pandas as pd

from study.compare import estimates, failed_runs, likeness
from study.compare.estimates import Estimate, estimate_ratio, explain_survivors
from study.core.statistics import summarize_ratios
from study.records import overlap

ANYTHING = (*likeness.ALIKE, "steering")  # in which machines and versions may differ


def compare_results(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> tuple[Estimate, list[pd.DataFrame]]:
    """(the ratio ``one`` / ``other``, the runs of each that it is of), one of which is empty without values.

    From the blocks that both have, else of all repeats, without an interval. None of runs that are
    no repeats of each other.

    Args:
        one: rows of the tidy table of runs, of one point.
        other: likewise, for the denominator.
        quantity: a column, of which less is better or nothing is.
    """
    arms = {"it": one, "the base": other}
    used = [failed_runs.keep_proven(runs[runs[quantity] > 0]) for runs in arms.values()]
    if any(runs.empty for runs in used):
        return Estimate(), used
    cold = likeness.find_blocks_read_unlike(used, quantity)
    left_out = dict.fromkeys(cold, f"its block has {likeness.PAGE_CACHE}")
    warm = [runs[~runs["block"].isin(cold)] for runs in used]
    is_cold = any(runs.empty for runs in warm)
    used = used if is_cold else warm
    ratio = _estimate_by_blocks(used[0], used[1], quantity)
    why_not = likeness.PAGE_CACHE if is_cold else _explain_no_repeats(used)
    if why_not:
        ratio = Estimate(pairing=ratio.pairing, why_not=why_not)
    elif survivors := explain_survivors(ratio, arms, failed_runs.find_better_direction(quantity)):
        ratio = ratio.drop_interval(survivors)
    return dataclasses.replace(ratio, left_out={**ratio.left_out, **left_out}), used


def _explain_no_repeats(arms: list[pd.DataFrame]) -> str | None:
    """Why the runs of one arm are no repeats of each other, or shared a host; None if all is well."""
    differences = [likeness.describe_difference(runs) for runs in arms]
    together = overlap.AT_ONCE if overlap.mark_overlapping_runs(pd.concat(arms)).any() else None
    return differences[0] or differences[1] or together


def _estimate_by_blocks(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> Estimate:
    """The ratio within the blocks that both have; without one, the ratio of all repeats."""
    ratio = estimate_ratio(one, other, quantity, free=ANYTHING)
    if not math.isnan(ratio.value):
        return ratio
    value = summarize_ratios(one[quantity]).middle / summarize_ratios(other[quantity]).middle
    return Estimate(value, blocks=min(len(one), len(other)), pairing=estimates.UNPAIRED)
