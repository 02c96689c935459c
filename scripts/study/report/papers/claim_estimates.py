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
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from study.compare import failed_runs
from study.compare.estimates import UNPAIRED, Estimate, drop_survivors_interval, estimate_difference, estimate_ratio
from study.core import units
from study.core.errors import StudyError
from study.core.registry import Registry
from study.core.statistics import compute_spread_pct, summarize
from study.records.power import OF_POWER
from study.report.papers.claim_arms import Arms, compare_rank_counts, pair_arms
from study.report.papers.declaration import OF_LOADS, Claim
from study.report.tables.point_comparisons import OF_RATIO


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


OwnForm = Callable[[Claim, pd.DataFrame], Answer | None]
OWN_FORMS: Registry[OwnForm] = Registry("quantity of a claim")


def check_own_form(claim: Claim, paper: str) -> None:
    """Raise `StudyError` for a quantity that neither the paper's file declares nor its module registers."""
    if claim.has_own_form and claim.quantity not in OWN_FORMS:
        raise StudyError(
            f"config/papers/{paper}/claims.yaml: claims: there is no quantity '{claim.quantity}'; "
            f"expected one of those under quantities, or {', '.join(OWN_FORMS)}, or a new one"
        )


def answer_claim(claim: Claim, runs: pd.DataFrame) -> list[Answer]:
    """The answers of a claim from its runs, or its loading measurements: all of them or those of one experiment."""
    claim = compare_rank_counts(claim, runs)
    if claim.has_own_form:
        answer = OWN_FORMS[claim.quantity](claim, runs)
        return [answer] if answer else []
    if claim.form == OF_LOADS:
        answers = [_estimate_loads(claim, runs)] if len(runs) else []
    elif claim.form is None or (claim.one and claim.one == claim.other):
        answers = []
    else:
        answers = [_estimate_arms(claim, arms) for arms in pair_arms(claim, runs)]
    return [answer for answer in answers if answer.estimate.blocks]


def _estimate_arms(claim: Claim, arms: Arms) -> Answer:
    """The number of one or two sets of runs; without blocks if they have none, or cannot be compared."""
    if claim.form == "failed_pct":
        return Answer(_estimate_failures(arms.one, claim.failure), arms)
    if claim.measure is None or mixes_power(claim.measure, *arms.sides):
        return Answer(Estimate(), arms)
    if arms.other is None:
        return Answer(_estimate_repeats(claim.form or "", arms.one, claim.measure), arms)
    estimate = _compare(claim.form or "", arms.one, arms.other, claim.measure)
    if claim.form != "difference_pct":
        return Answer(estimate, arms)
    return Answer(estimate, arms, weight=_average_compared_blocks(arms.other, arms.one, claim.measure, estimate))


def _estimate_failures(runs: pd.DataFrame, kind: str | None) -> Estimate:
    """100 x failed / all repeats; of failures of one kind, or of any. Without those that were lost with a host."""
    repeats = pd.concat([failed_runs.keep_proven(runs), runs[failed_runs.mark_failures_of_arm(runs)]])
    failed = repeats["failure_kind"].eq(kind) if kind else repeats["status"].ne("ok")
    return Estimate(100 * float(failed.mean()), blocks=len(repeats)) if len(repeats) else Estimate()


def _estimate_repeats(form: str, runs: pd.DataFrame, column: str) -> Estimate:
    """The mean over the successful repeats, or how far they are apart."""
    values = failed_runs.keep_proven(runs)[column]
    sample = summarize(values)
    if form == "spread_pct":
        return Estimate(compute_spread_pct(values), blocks=sample.n) if sample.n > 1 else Estimate()
    scale = 100 if form == "value_pct" else 1
    mean, half = scale * sample.mean, scale * sample.ci95
    return Estimate(mean, mean - half, mean + half, sample.n)


def _compare(form: str, one: pd.DataFrame, other: pd.DataFrame, column: str) -> Estimate:
    """The number of two sets of runs, paired within blocks; without an interval if that is one of survivors."""
    is_difference = form == "difference"
    estimate = (estimate_difference if is_difference else estimate_ratio)(one, other, column)
    if not estimate.blocks:
        return estimate
    if {*one["machine"]} != {*other["machine"]}:  # which never take turns
        estimate = dataclasses.replace(estimate, pairing=estimate.pairing and UNPAIRED).drop_interval()
    estimate = drop_survivors_interval(estimate, {"one": one, "other": other}, column, 0.0 if is_difference else 1.0)
    if form == "efficiency":
        ranks = one["gpus"].iloc[0] / other["gpus"].iloc[0]
        return estimate.convert(lambda ratio: ratio / ranks)
    return estimate if is_difference else estimate.convert(OF_RATIO[form])


def mixes_power(column: str, *arms: pd.DataFrame) -> bool:
    """Whether a number would be one of measured and modelled power, also of a column that follows from power."""
    is_of_power = column in OF_POWER or units.find_unit(column) in ("W", "J")
    return is_of_power and len({source for arm in arms for source in arm["power_source"].dropna()}) > 1


def _average_compared_blocks(arm: pd.DataFrame, other: pd.DataFrame, column: str, estimate: Estimate) -> float:
    """The mean of an arm over the blocks that an estimate is of."""
    arm, other = (failed_runs.keep_proven(each).dropna(subset=[column]) for each in (arm, other))
    compared = arm["block"].isin(other["block"]) & ~arm["block"].isin(list(estimate.left_out))
    return float(arm.loc[compared, column].astype(float).mean())


def _estimate_loads(claim: Claim, loads: pd.DataFrame) -> Answer:
    """The median of the repeats' ratios other / one; without blocks if no repeat has both loaders."""
    one, other = claim.one["loader"], claim.other["loader"]
    used = loads[loads["loader"].isin([one, other])]
    times = used.pivot(index="repeat", columns="loader", values="load_s").reindex(columns=[one, other])
    ratios = (times[other] / times[one]).dropna()
    return Answer(Estimate(float(ratios.median()), blocks=len(ratios)), Arms(used))
