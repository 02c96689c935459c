"""Two sets of results at one point, of two machines or of two versions of the code: their ratio."""

import dataclasses
import math

import pandas as pd

from study.compare import estimates, failed_runs, likeness
from study.compare.estimates import Estimate, estimate_mean, estimate_ratio, estimate_ratio_of_means, explain_survivors
from study.core.statistics import summarize_ratios
from study.records import overlap

ANYTHING = (*likeness.ALIKE, "steering")  # in which machines and versions may differ


def compare_results(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> tuple[Estimate, list[pd.DataFrame]]:
    """(the ratio ``one`` / ``other``, the runs of each that it is of), one of which is empty without values.

    By calibrations if both were made on one host, else from the blocks that both have, else of all repeats, without an
    interval. None of runs that are no repeats of each other.

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
    estimate = _estimate_by_calibrations if _are_calibrated(pd.concat(used)) else _estimate_by_blocks
    ratio = estimate(used[0], used[1], quantity)
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


def _estimate_by_calibrations(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> Estimate:
    """The ratio of multiples of the calibrations beside each run."""
    numerator, denominator = (
        estimate_mean(summarize_ratios(runs[quantity] / runs["calibration_s"]), len(runs)) for runs in (one, other)
    )
    return estimate_ratio_of_means(numerator, denominator)


def _estimate_by_blocks(one: pd.DataFrame, other: pd.DataFrame, quantity: str) -> Estimate:
    """The ratio within the blocks that both have; without one, the ratio of all repeats."""
    ratio = estimate_ratio(one, other, quantity, free=ANYTHING)
    if not math.isnan(ratio.value):
        return ratio
    value = summarize_ratios(one[quantity]).middle / summarize_ratios(other[quantity]).middle
    return Estimate(value, blocks=min(len(one), len(other)), pairing=estimates.UNPAIRED)


def _are_calibrated(runs: pd.DataFrame) -> bool:
    """Whether the runs of both have calibrations that can be compared: of one version, on one host, as their ranks.

    A host is known by its name and its hardware, since many are named localhost or node01.
    """
    if "calibration_version" not in runs or runs["calibration_s"].isna().any():
        return False
    columns = ["calibration_version", *(name for name in ("host", "hosts", "hardware") if name in runs)]
    return bool(runs[columns].notna().all(axis=None)) and bool((runs[columns].nunique() == 1).all())
