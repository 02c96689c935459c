"""Recommend a rank count for a goal, and the measurement that would narrow the answer most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from study.core.wording import format_count, format_sampled_share, format_significant
from study.experiment.study import compute_work_growth
from study.prediction import evidence
from study.prediction.accuracy import MET, UNKNOWN, judge_limit
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
    if (joules := draws.get("energy_job_j")) is not None:
        quantities |= {"energy_job_j": joules, "energy_delay_product_js": joules * runtime}
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
    failed: dict[int, evidence.Failures] | None = None,
    misfits: Sequence[evidence.Misfit] = (),
    to_words: ToWords | None = None,
    is_highest: bool = False,
) -> Recommendation:
    """The recommendation for one series.

    Measured counts are judged by their measurements. Counts that were not measured are judged by the model, and none of
    them is recommended if measurements contradict each other.

    Args:
        prediction: of the candidates, ascending; the first is the base of efficiency.
        goal: what the count must achieve.
        failed: {rank count: its failed runs} of this series.
        misfits: measurements of the workload that contradict each other.
        to_words: says low, median and high of the minimised quantity at a count in another unit.
        is_highest: whether higher is better in that unit.
    """
    settings = prediction.settings
    misfits = [each for each in misfits if _is_of_goal(each, goal)]
    draws, is_measured = evidence.draw_judged(prediction)
    quantities = derive_quantities(settings, draws, goal.price)
    counts = settings["ranks"].astype(int).to_numpy()
    failing = evidence.exclude_failing_counts(failed or {}, set(counts[is_measured]), counts.tolist(), goal.probability)
    limits_met = _judge_limits(prediction, goal, quantities)
    candidates = _tabulate_candidates(prediction, goal.price, is_measured)
    is_near = (candidates["ratio_to_largest"] <= FARTHEST).to_numpy()
    holds = np.ones((len(counts), 1), dtype=bool)
    for each in limits_met.values():  # of each draw, or of all draws at once
        holds = holds & each
    candidates["probability_of_limits"] = probabilities = holds.mean(axis=1)
    excluded: dict[int, str] = {}
    for place, count in enumerate(counts.tolist()):
        if not is_near[place]:
            excluded[count] = f"more than {FARTHEST} times the largest measured count"
        elif count in failing or (misfits and not is_measured[place]):
            excluded[count] = failing.get(count, NOT_TRUSTED)
        elif probabilities[place] < goal.probability:  # the limit that is least likely to be met
            excluded[count] = min(reversed(limits_met), key=lambda words: limits_met[words][place].mean())
    candidates["excluded_by"] = [excluded.get(count) for count in counts.tolist()]
    if changing := describe_changing_work(settings):
        return Recommendation(candidates, None, f"no recommendation: {changing}")
    if unknown := _explain_unknown(prediction, goal, quantities):
        return Recommendation(candidates, None, f"no recommendation: {unknown}")
    eligible = candidates["excluded_by"].isna().to_numpy()
    minimised, medians = quantities[goal.minimise], np.median(quantities[goal.minimise], axis=1)
    best = int(np.where(eligible if eligible.any() else is_near, medians, np.inf).argmin())
    # One run more at a measured count changes its mean only. A count that failed would fail again. Where measurements
    # contradict each other, nothing is known of the errors.
    target = derive_quantities(settings, prediction.means, goal.price)[goal.minimise][best]
    narrows = estimate_narrowing(prediction.means["runtime_s"], target, load_calibration()["noise"])
    is_advised = is_near & ~is_measured & ~np.isin(counts, list(failing)) & (not misfits)
    candidates["narrows_interval_by"] = np.where(is_advised, narrows, np.nan)
    if not eligible.any():
        reasons = "; ".join(f"{words} excludes {ranks}" for words, ranks in evidence.group_counts(excluded))
        return Recommendation(candidates, None, f"no count meets the goal: {reasons}")
    candidates["recommended"] = candidates.index == best
    low, median, high = (float(value) for value in compute_interval(minimised[best]))
    formatted = [format_significant(value, digits=4) for value in (median, low, high)]
    value = "{} {} ({} to {})".format(goal.minimise, *formatted)
    value = to_words(int(counts[best]), (low, median, high)) if to_words else value
    how = "measured" if is_measured[best] else "predicted"
    sentence = f"recommended: {format_count(counts[best], 'rank')}; {how} {value}, "
    sentence += _describe_competition(goal, minimised[eligible], int(eligible[:best].sum()), is_highest)
    better = set(counts[(medians < medians[best]) & is_near])
    if out := evidence.group_counts({count: why for count, why in excluded.items() if count in better}):
        exclusions, word = "; ".join(f"{ranks} by {words}" for words, ranks in out), "higher" if is_highest else "lower"
        sentence += f". Counts with a {word} median do not compete, as they are excluded: {exclusions}"
    if misfits:
        words = "; ".join(misfit.words for misfit in misfits)
        sentence += f". Counts that were not measured are not considered, because {NOT_TRUSTED}: {words}"
    failures = [f"Excluded: {ranks}, as {words}" for words, ranks in evidence.group_counts(failing)]
    doubts = evidence.group_counts(evidence.doubt_superlinear_counts(prediction.observations))
    doubted = [f"Doubted: {ranks}, as {words}" for words, ranks in doubts]
    return Recommendation(candidates, int(counts[best]), ". ".join([sentence, *failures, *doubted]))


def _is_of_goal(misfit: evidence.Misfit, goal: Goal) -> bool:
    """Whether a goal depends on a quantity that the model does not fit. All quantities depend on the runtime."""
    return misfit.quantity == "runtime_s" or any(name.startswith("energy") for name in goal.quantities)


def _explain_unknown(prediction: Prediction, goal: Goal, quantities: dict[str, np.ndarray]) -> str | None:
    """Why a quantity of the goal is not known, in words; None if all are known."""
    measured = prediction.measured
    for name in goal.quantities:
        if name in NOT_EXTRAPOLATED and measured[name].isna().all():
            return f"no run has {name}"
        if name not in quantities and name not in NOT_EXTRAPOLATED:
            number = "too few runs have" if measured["energy_per_rank_j"].notna().any() else "no run has"
            return f"{number} energy, so {name} is unknown"
    return None


def _tabulate_candidates(prediction: Prediction, price: float | None, is_measured: np.ndarray) -> pd.DataFrame:
    settings, here = prediction.settings, prediction.observations
    frame = pd.DataFrame({"ranks": settings["ranks"].astype(int), "nodes": settings["nodes"].astype(int)})
    frame["ratio_to_largest"] = frame["ranks"] / prediction.largest
    frame["decided_by"] = np.where(is_measured, "measurement", "prediction")
    for name, draws in derive_quantities(settings, prediction.draws, price).items():
        low, median, high = compute_interval(draws)
        frame[f"predicted_{name}"], frame[f"predicted_{name}_low"], frame[f"predicted_{name}_high"] = median, low, high
    frame["measured_runtime_s"] = here["runtime_s"].reindex(settings["ranks"]).to_numpy(float)
    return frame.reset_index(drop=True)


def _judge_limits(prediction: Prediction, goal: Goal, quantities: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{limit in words: whether each candidate meets it, (settings, draws or 1)}."""
    limits_met = {}
    for limit in goal.limits:
        if limit.quantity in quantities:
            limits_met[limit.words] = limit.is_met(quantities[limit.quantity])
        elif limit.quantity in NOT_EXTRAPOLATED:
            verdicts = np.array(judge_limit(prediction.measured, prediction.settings, limit))[:, None]
            limits_met[limit.words] = verdicts == MET
            limits_met[f"{limit.words} (not known there)"] = verdicts != UNKNOWN
        else:
            limits_met[f"{limit.words} (not known)"] = np.zeros((len(prediction.settings), 1), dtype=bool)
    return limits_met


def _describe_competition(goal: Goal, draws: np.ndarray, place: int, is_highest: bool) -> str:
    """Among which counts the best one, at a place of their draws, is the best, and how surely."""
    limits = " and ".join(limit.words for limit in goal.limits)
    conditions = f" with {limits}, with a probability of at least {goal.probability:.0%}" if limits else ""
    if len(draws) == 1:
        return f"the only candidate{conditions}"
    number, extreme = len(draws), "highest" if is_highest else "lowest"
    share = format_sampled_share(float((draws.argmin(axis=0) == place).mean()))
    return (
        f"the {extreme} of {number} candidates{conditions}; among these {number} it is the {extreme} with a "
        f"probability of {share}"
    )


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
