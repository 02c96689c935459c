"""From the runs of a claim to its number: the forms that a ``claims.yaml`` can name.

Of one set of runs:

- value, value_pct: the mean over the repeats, and 100 x the mean
- spread_pct: 100 x (longest / shortest - 1) over the repeats
- failed_pct: 100 x repeats that failed / all, of one kind of ``failure`` or of any; repeats that were lost with a host
  or a batch job are not counted

Of two sets of runs, ``one`` and ``other``, which differ in nothing else; paired within blocks:

- ratio, speedup: one / other, other / one
- change_pct, loss_pct: 100 x (one / other - 1), 100 x (1 - one / other)
- efficiency: one / other / (ranks of one / ranks of other)
- difference: one - other
- difference_pct: as change_pct; of several points 100 x the sum of the differences / the sum of the others
- growth, growth_pct: ratio and change_pct of the claim's number of ranks to ``fewest`` ranks, by default the fewest
  that were run
- speedup_of_loads: other / one of loading the training file alone, from loading measurements

Other forms are functions that a paper's module registers in `OWN_FORMS`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd

from study.compare import failed_runs
from study.compare.estimates import UNPAIRED, Estimate, estimate_difference, estimate_ratio, without_survivors
from study.core import units
from study.core.errors import StudyError
from study.core.registry import Registry
from study.core.statistics import summarize
from study.records.power import OF_POWER
from study.report.papers import formulas
from study.report.papers.claim_arms import Arms, compare_rank_counts, pair_arms
from study.report.papers.declaration import Claim


@dataclass(frozen=True)
class Answer:
    """A claim's number from runs that differ in nothing but what it compares.

    Args:
        estimate: NaN if these runs have none; `missing` then says why.
        arms: the runs behind it, failed ones too.
        weight: in the mean of several numbers.
    """

    estimate: Estimate
    arms: Arms
    weight: float = 1.0
    missing: str | None = None


OF_LOADS = "speedup_of_loads"
OwnForm = Callable[[Claim, pd.DataFrame], Answer | None]
OWN_FORMS: Registry[OwnForm] = Registry("quantity of a claim")


def check_own_form(claim: Claim, paper: str) -> None:
    """Raise `StudyError` for a quantity that neither the paper's file declares nor its module registers."""
    if claim.has_own_form and claim.quantity not in OWN_FORMS:
        raise StudyError(
            f"config/papers/{paper}/claims.yaml: claims: there is no quantity '{claim.quantity}'; "
            f"expected one of those under quantities, or {', '.join(OWN_FORMS)}, or a new one"
        )


def answer_claim(claim: Claim, runs: pd.DataFrame) -> Iterator[Answer]:
    """The answers of a claim from its runs, all of them or those of one experiment."""
    claim = compare_rank_counts(claim, runs)
    if claim.has_own_form:
        yield from filter(None, [OWN_FORMS[claim.quantity](claim, runs)])
    elif claim.form and not (claim.one and claim.one == claim.other):
        for arms in pair_arms(claim, runs):
            answer = _estimate_one(claim, arms) if arms.other is None else _estimate_two(claim, arms, arms.other)
            if answer.estimate.blocks:
                yield answer


def _estimate_one(claim: Claim, arms: Arms) -> Answer:
    """The number of one set of runs; without blocks if they have none."""
    good, column = arms.one[arms.one["status"].eq("ok")], claim.column
    if claim.form == "failed_pct":
        return Answer(_estimate_failures(arms.one, claim.failure), arms)
    if column is None or mixes_power(good, column):
        return Answer(Estimate(), arms)
    sample = summarize(good[column])
    if claim.form != "spread_pct":
        scale = 100 if claim.form == "value_pct" else 1
        mean, half = scale * sample.mean, scale * sample.ci95
        return Answer(Estimate(mean, mean - half, mean + half, sample.n), arms)
    if sample.n < 2:
        return Answer(Estimate(), arms)
    spread = 100 * (good[column].max() / good[column].min() - 1)
    return Answer(Estimate(float(spread), blocks=sample.n), arms)


def _estimate_failures(runs: pd.DataFrame, kind: str | None) -> Estimate:
    """100 x failed / all repeats; of failures of one kind, or of any. Without those that were lost with a host."""
    repeats = runs[runs["status"].eq("ok") | failed_runs.mark_failures_of_arm(runs)]
    failed = repeats["failure_kind"].eq(kind) if kind else repeats["status"].ne("ok")
    return Estimate(100 * float(failed.mean()), blocks=len(repeats)) if len(repeats) else Estimate()


def _estimate_two(claim: Claim, arms: Arms, other: pd.DataFrame) -> Answer:
    """The number of two sets of runs, without the interval of survivors; without blocks if none can be compared."""
    one, column, form = arms.one, claim.column or "", claim.form or ""
    is_difference = form == "difference"
    if mixes_power(arms.runs, column):
        return Answer(Estimate(), arms)
    estimate = (estimate_difference if is_difference else estimate_ratio)(one, other, column)
    if not estimate.blocks:
        return Answer(estimate, arms)
    if arms.runs["machine"].nunique() > 1:  # which never take turns
        estimate = dataclasses.replace(estimate, pairing=estimate.pairing and UNPAIRED).without_interval()
    estimate = without_survivors(estimate, {"one": one, "other": other}, column, 0.0 if is_difference else 1.0)
    if is_difference:
        return Answer(estimate, arms)
    ranks = one["gpus"].iloc[0] / other["gpus"].iloc[0]
    weight = _average_compared_blocks(other, one, column, estimate) if form == "difference_pct" else 1.0
    return Answer(estimate.convert(functools.partial(formulas.of_ratio, form, ranks=ranks)), arms, weight)


def mixes_power(runs: pd.DataFrame, column: str) -> bool:
    """Whether a number would be one of measured and modelled power, also of a column that follows from power."""
    is_of_power = column in OF_POWER or units.of_column(column) in ("W", "J")
    return is_of_power and runs["power_source"].nunique() > 1


def _average_compared_blocks(arm: pd.DataFrame, other: pd.DataFrame, column: str, estimate: Estimate) -> float:
    """The mean of an arm over the blocks that an estimate is of."""
    arm, other = (each[each["status"].eq("ok")].dropna(subset=[column]) for each in (arm, other))
    compared = arm["block"].isin(other["block"]) & ~arm["block"].isin(list(estimate.left_out))
    return float(arm.loc[compared, column].astype(float).mean())


def answer_from_loads(claim: Claim, loads: pd.DataFrame) -> Iterator[Answer]:
    """The median of the repeats' ratios other / one, of each measurement of the training file.

    loads: the measurements with either of the claim's loaders.
    """
    if loads.empty:
        return
    one, other = claim.one["loader"], claim.other["loader"]
    for _, group in loads.groupby(["machine", "dataset", "page_cache"], sort=False):
        times = group.pivot(index="repeat", columns="loader", values="load_s").reindex(columns=[one, other])
        ratios = (times[other] / times[one]).dropna()
        if len(ratios):
            yield Answer(Estimate(float(ratios.median()), blocks=len(ratios)), Arms(group))
