"""Recommend a rank count for a goal, and the measurement that would narrow the answer most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from study.core.wording import format_count, format_sampled_share, format_significant
from study.experiment.study import compute_work_growth
from study.prediction.accuracy import MET, UNKNOWN, judge_limit
from study.prediction.evidence import (
    Failures,
    Misfit,
    describe_excluded,
    draw_judged,
    exclude_failing_counts,
    exclude_superlinear_counts,
)
from study.prediction.goals import Goal
from study.prediction.runtime_model import Prediction, compute_interval
from study.prediction.scaling_model import load_calibration
from study.prediction.settings import NOT_EXTRAPOLATED

NOT_TRUSTED = "the model does not fit what was measured"
ToWords = Callable[[int, tuple[float, float, float]], str]
LEAST_NARROWING = 0.05  # of an interval, for which a further measurement is advised
FARTHEST = 8  # times the largest measured count: farther predictions are shown and never recommended


@dataclass(frozen=True)
class Recommendation:
    """candidates: one row per count; pick: the recommended count or None; reason: one sentence."""

    candidates: pd.DataFrame
    pick: int | None
    reason: str


def derive_quantities(
    settings: pd.DataFrame, draws: dict[str, np.ndarray], price: float | None
) -> dict[str, np.ndarray]:
    """Draws of all quantities that goals may name, each (settings, draws).

    settings: of one series, ascending; the first one is the base of efficiency. draws: of a `Prediction`.
    """
    ranks, runtime = settings["ranks"].to_numpy(float)[:, None], draws["runtime_s"]
    node_hours = settings["nodes"].to_numpy(float)[:, None] * runtime / 3600
    growth = ranks / ranks[:1]
    efficiency = runtime[:1] / runtime * _compute_growth_of_work(settings, growth) / growth
    quantities = {"runtime_s": runtime, "node_hours": node_hours, "efficiency": efficiency}
    if "energy_job_j" in draws:
        quantities |= {
            "energy_job_j": draws["energy_job_j"],
            "energy_delay_product_js": draws["energy_job_j"] * runtime,
        }
    return quantities | ({"cost": node_hours * price} if price else {})


def _compute_growth_of_work(settings: pd.DataFrame, growth: Any) -> Any:
    """By how much the work of a series grows where its ranks grow ``growth`` times."""
    first = settings.iloc[0]
    return compute_work_growth(first["scaling"], first.get("sharding", "none"), growth)


def describe_changing_work(settings: pd.DataFrame) -> str | None:
    """How the work of a series changes with its ranks, in words; None if it does not."""
    if (work := _compute_growth_of_work(settings, 2.0)) == 1:
        return None
    changes = "grows with the ranks" if work > 1 else "falls with the ranks, as they share epochs and samples"
    return f"under {settings['scaling'].iloc[0]} scaling the work {changes}"


def recommend(
    prediction: Prediction,
    goal: Goal,
    failed: dict[int, Failures] | None = None,
    misfits: Sequence[Misfit] = (),
    to_words: ToWords | None = None,
) -> Recommendation:
    """The recommendation for one series.

    Measured counts are judged by their measurements. Counts that were not measured are judged by the model, and none of
    them is recommended if measurements contradict each other.

    Args:
        prediction: of the candidates, ascending; the first is the base of efficiency.
        goal: what the count must achieve.
        failed: {rank count: its failed runs} of this series.
        misfits: measurements of the workload that contradict each other.
        to_words: says low, median and high of the minimised quantity at a count in another unit, where higher is
            better.
    """
    settings = prediction.settings
    judgement = _Judgement(prediction, goal, failed or {}, [each for each in misfits if _is_of_goal(each, goal)])
    quantities = judgement.quantities
    wanted = (goal.minimise, *(limit.quantity for limit in goal.limits))
    missing = [name for name in wanted if name not in quantities and not _is_measured(prediction, name)]
    candidates = _tabulate_candidates(judgement)
    if changing := describe_changing_work(settings):
        return Recommendation(candidates, None, f"no recommendation: {changing}")
    if missing:
        return Recommendation(candidates, None, f"no recommendation: {_explain_unknown(prediction, missing[0])}")
    eligible, near = candidates["excluded_by"].isna(), candidates["ratio_to_largest"] <= FARTHEST
    among = eligible if eligible.any() else near
    best = int(candidates.index[among][np.argmin(np.median(quantities[goal.minimise][among.to_numpy()], axis=1))])
    candidates["narrows_interval_by"] = judgement.narrows(best, near)
    if not eligible.any():
        return Recommendation(candidates, None, f"no count meets the goal: {_describe_excluded(candidates)}")
    candidates["recommended"] = candidates.index == best
    return Recommendation(
        candidates,
        int(candidates["ranks"][best]),
        _explain_recommendation(judgement, candidates, best, eligible, to_words),
    )


def _is_of_goal(misfit: Misfit, goal: Goal) -> bool:
    """Whether a goal depends on a quantity that the model does not fit. All quantities depend on the runtime."""
    names = (goal.minimise, *(limit.quantity for limit in goal.limits))
    return misfit.quantity == "runtime_s" or any(name.startswith("energy") for name in names)


class _Judgement:
    """What is known of the candidates of one series. quantities: draws of each, by which they are compared."""

    def __init__(
        self, prediction: Prediction, goal: Goal, failed: dict[int, Failures], misfits: Sequence[Misfit]
    ) -> None:
        self.prediction, self.goal, self.misfits = prediction, goal, misfits
        self.settings = prediction.settings
        self.counts = [int(ranks) for ranks in self.settings["ranks"]]
        draws, self.is_measured = draw_judged(prediction)
        self.quantities = derive_quantities(self.settings, draws, goal.price)
        self.predicted = derive_quantities(self.settings, prediction.draws, goal.price)
        measured = {count for count, has_runs in zip(self.counts, self.is_measured, strict=True) if has_runs}
        self.failed = exclude_failing_counts(failed, measured, self.counts, goal.probability)
        self.failed |= exclude_superlinear_counts(prediction.observations)

    def narrows(self, best: int, near: pd.Series) -> np.ndarray:
        """By which share a run at each candidate would narrow the best one's interval; NaN where none is advised.

        One run more at a measured count changes its mean only. A count that failed would fail again. Where measurements
        contradict each other, nothing is known of the errors.
        """
        target = derive_quantities(self.settings, self.prediction.means, self.goal.price)[self.goal.minimise][best]
        narrows = estimate_narrowing(self.prediction.means["runtime_s"], target, load_calibration()["noise"])
        has_not_failed = np.array([count not in self.failed for count in self.counts])
        advised = near.to_numpy() & ~self.is_measured & has_not_failed & (not self.misfits)
        return np.where(advised, narrows, np.nan)

    def excludes(self, place: int) -> str | None:
        """Why a candidate cannot be recommended whatever the limits; None if it can."""
        if self.counts[place] / self.prediction.largest > FARTHEST:
            return f"more than {FARTHEST} times the largest measured count"
        if (failure := self.failed.get(self.counts[place])) is not None:
            return failure
        return NOT_TRUSTED if self.misfits and not self.is_measured[place] else None


def _is_measured(prediction: Prediction, quantity: str) -> bool:
    """Whether ``quantity`` is one that is not extrapolated, and some run has it."""
    return quantity in NOT_EXTRAPOLATED and bool(prediction.measured[quantity].notna().any())


def _explain_unknown(prediction: Prediction, quantity: str) -> str:
    if quantity in NOT_EXTRAPOLATED:
        return f"no run has {quantity}"
    number = "too few runs have" if prediction.measured["energy_per_rank_j"].notna().any() else "no run has"
    return f"{number} energy, so {quantity} is unknown"


def _tabulate_candidates(judgement: _Judgement) -> pd.DataFrame:
    prediction, settings = judgement.prediction, judgement.settings
    goal, quantities = judgement.goal, judgement.quantities
    frame = pd.DataFrame({"ranks": settings["ranks"].astype(int), "nodes": settings["nodes"].astype(int)})
    frame["ratio_to_largest"] = frame["ranks"] / prediction.largest
    frame["decided_by"] = np.where(judgement.is_measured, "measurement", "prediction")
    for name, draws in judgement.predicted.items():
        low, median, high = compute_interval(draws)
        frame[f"predicted_{name}"], frame[f"predicted_{name}_low"], frame[f"predicted_{name}_high"] = median, low, high
    here = prediction.observations
    frame["measured_runtime_s"] = [here["runtime_s"].get(count, np.nan) for count in judgement.counts]
    limits_met = {
        limit.words: limit.is_met(quantities[limit.quantity]) for limit in goal.limits if limit.quantity in quantities
    }
    limits_met |= _judge_by_measured(prediction, goal)
    unknown = [limit for limit in goal.limits if limit.quantity not in (*quantities, *NOT_EXTRAPOLATED)]
    limits_met |= {f"{limit.words} (not known)": np.zeros((len(frame), 1), dtype=bool) for limit in unknown}
    together = np.ones((len(frame), 1), dtype=bool)
    for holds in limits_met.values():  # of each draw, or of all draws at once
        together = together & holds
    frame["probability_of_limits"] = together.mean(axis=1)
    frame["excluded_by"] = [
        judgement.excludes(place)
        or _find_exclusion(place, frame["probability_of_limits"].iloc[place], limits_met, goal)
        for place in range(len(frame))
    ]
    return frame.reset_index(drop=True)


def _judge_by_measured(prediction: Prediction, goal: Goal) -> dict[str, np.ndarray]:
    """{limit in words: whether each candidate meets it, (settings, 1)} of limits of accuracy and of GPU memory."""
    limits_met = {}
    for limit in goal.limits:
        if limit.quantity in NOT_EXTRAPOLATED:
            verdicts = np.array(judge_limit(prediction.measured, prediction.settings, limit))[:, None]
            limits_met[limit.words] = verdicts == MET
            limits_met[f"{limit.words} (not known there)"] = verdicts != UNKNOWN
    return limits_met


def _find_exclusion(place: int, probability: float, limits_met: dict[str, np.ndarray], goal: Goal) -> str | None:
    """The limit that a candidate is least likely to meet; None if it meets all of them."""
    if probability >= goal.probability:
        return None
    return min(reversed(limits_met), key=lambda words: limits_met[words][place].mean())


def _describe_excluded(candidates: pd.DataFrame) -> str:
    by = candidates.groupby("excluded_by", sort=False)["ranks"].apply(lambda ranks: ", ".join(map(str, ranks)))
    return "; ".join(f"{words} excludes {ranks}" for words, ranks in by.items())


def estimate_narrowing(candidates: np.ndarray, target: np.ndarray, noise: float) -> np.ndarray:
    """By which share one run at each candidate would narrow the interval of the target's mean, shape (candidates,).

    From the correlation of the draws' logarithms: a measurement leaves sqrt(1 - r^2) of the standard deviation.

    Args:
        candidates: draws of the mean at each candidate, shape (candidates, draws).
        target: draws of the mean of the target, shape (draws,).
        noise: relative standard deviation of a single run.
    """
    x, y = np.log(candidates), np.log(target)
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean()
    correlation = (x @ y) / np.sqrt(((x**2).sum(axis=1) + x.shape[1] * noise**2) * (y**2).sum())
    return 1 - np.sqrt(1 - np.clip(correlation, -1, 1) ** 2)


def find_next_measurement(candidates: pd.DataFrame, most: int | None = None) -> pd.Series | None:
    """The candidate of which a run would narrow the answer most; None if that is not known.

    most: ranks that can be started; None for no limit.
    """
    if "narrows_interval_by" not in candidates:
        return None
    narrows = candidates["narrows_interval_by"].where(candidates["ranks"] <= (most or np.inf))
    return None if narrows.isna().all() else candidates.loc[narrows.idxmax()]


def _explain_recommendation(
    judgement: _Judgement, candidates: pd.DataFrame, best: int, eligible: pd.Series, to_words: ToWords | None
) -> str:
    """The recommendation in one sentence, among which counts it is the best, and why others were not considered."""
    goal, row = judgement.goal, candidates.iloc[best]
    draws = judgement.quantities[goal.minimise]
    low, median, high = (float(value) for value in compute_interval(draws[best]))
    formatted = [format_significant(value, digits=4) for value in (median, low, high)]
    value = to_words(int(row["ranks"]), (low, median, high)) if to_words else "{} {} ({} to {})".format(
        goal.minimise, *formatted
    )  # fmt: skip
    how = "measured" if judgement.is_measured[best] else "predicted"
    limits = " and ".join(limit.words for limit in goal.limits)
    conditions = f" with {limits}, with a probability of at least {goal.probability:.0%}" if limits else ""
    number, extreme = int(eligible.sum()), "highest" if to_words else "lowest"
    sentence = f"recommended: {format_count(row['ranks'], 'rank')}; {how} {value}, "
    if number > 1:
        surest = float((draws[eligible.to_numpy()].argmin(axis=0) == int(eligible[: best + 1].sum()) - 1).mean())
        sentence += (
            f"the {extreme} of {number} candidates{conditions}; among these {number} it is the {extreme} with a "
            f"probability of {format_sampled_share(surest)}"
        )
    else:
        sentence += f"the only candidate{conditions}"
    medians = np.median(draws, axis=1)
    better = candidates[~eligible & (medians < medians[best]) & (candidates["ratio_to_largest"] <= FARTHEST)]
    if len(better):
        by = better.groupby("excluded_by", sort=False)["ranks"].apply(lambda ranks: ", ".join(map(str, ranks)))
        exclusions = "; ".join(f"{ranks} by {words}" for words, ranks in by.items())
        word = "higher" if to_words else "lower"
        sentence += f". Counts with a {word} median do not compete, as they are excluded: {exclusions}"
    if judgement.misfits:
        words = "; ".join(misfit.words for misfit in judgement.misfits)
        sentence += f". Counts that were not measured are not considered, because {NOT_TRUSTED}: {words}"
    return ". ".join([sentence, *describe_excluded(judgement.failed)])
