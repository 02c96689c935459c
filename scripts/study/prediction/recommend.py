"""Recommend a rank count for a goal, and the measurement that would narrow the answer most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from study.experiment.study import growth_of_work
from study.prediction.accuracy import MET, UNKNOWN, verdicts
from study.prediction.goals import Goal, Limit
from study.prediction.model import Model, Prediction, interval
from study.prediction.settings import ACCURACIES, SERIES

FARTHEST = 8  # times the largest measured count: farther predictions are shown and never recommended


@dataclass(frozen=True)
class Recommendation:
    """candidates: one row per count; pick: the recommended count or None; reason: one sentence."""

    candidates: pd.DataFrame
    pick: int | None
    reason: str


def quantities(settings: pd.DataFrame, draws: dict[str, np.ndarray], price: float | None) -> dict[str, np.ndarray]:
    """Draws of all quantities that goals may name, each (settings, draws).

    settings: of one series, ascending; the first one is the base of efficiency. draws: of a `Prediction`.
    """
    ranks, runtime = settings["ranks"].to_numpy(float)[:, None], draws["runtime_s"]
    node_hours = settings["nodes"].to_numpy(float)[:, None] * runtime / 3600
    growth = ranks / ranks[:1]
    efficiency = runtime[:1] / runtime * _work(settings, growth) / growth
    found = {"runtime_s": runtime, "node_hours": node_hours, "efficiency": efficiency}
    if "energy_job_j" in draws:
        found |= {"energy_job_j": draws["energy_job_j"], "energy_delay_product_js": draws["energy_job_j"] * runtime}
    return found | ({"cost": node_hours * price} if price else {})


def _work(settings: pd.DataFrame, growth: Any) -> Any:
    """By how much the work of a series grows where its ranks grow ``growth`` times."""
    first = settings.iloc[0]
    return growth_of_work(first["scaling"], first.get("sharding", "none"), growth)


def changing_work(settings: pd.DataFrame) -> str | None:
    """How the work of a series changes with its ranks, in words; None if it does not."""
    if (work := _work(settings, 2.0)) == 1:
        return None
    changes = "grows with the ranks" if work > 1 else "falls with the ranks, as they share epochs and samples"
    return f"under {settings['scaling'].iloc[0]} scaling the work {changes}"


def recommend(model: Model, prediction: Prediction, goal: Goal) -> Recommendation:
    """The recommendation for one series.

    prediction: of the candidates, ascending; the first is the base of efficiency.
    """
    settings = prediction.settings
    known = quantities(settings, prediction.draws, goal.price)
    wanted = (goal.minimise, *(limit.quantity for limit in goal.limits))
    missing = [name for name in wanted if name not in known and not _has_accuracy(model, name)]
    candidates = _candidates(model, settings, known, goal)
    if changing := changing_work(settings):
        return Recommendation(candidates, None, f"no recommendation: {changing}")
    if missing:
        return Recommendation(candidates, None, f"no recommendation: {_why_unknown(model, missing[0])}")
    eligible, near = candidates["excluded_by"].isna(), candidates["ratio_to_largest"] <= FARTHEST
    among = eligible if eligible.any() else near
    best = int(candidates.index[among][np.argmin(np.median(known[goal.minimise][among.to_numpy()], axis=1))])
    target = quantities(settings, prediction.means, goal.price)[goal.minimise][best]
    narrows = narrowing(prediction.draws["runtime_s"], target)
    # One run more at a measured count changes its mean only, so it is not advised.
    is_new = ~candidates["ranks"].isin(_measured_counts(model, settings))
    candidates["narrows_interval_by"] = np.where(near & is_new, narrows, np.nan)
    if not eligible.any():
        return Recommendation(candidates, None, f"no count meets the goal: {_excluded(candidates)}")
    candidates["recommended"] = candidates.index == best
    return Recommendation(candidates, int(candidates["ranks"][best]), _reason(candidates, known, goal, best, eligible))


def _has_accuracy(model: Model, quantity: str) -> bool:
    """Whether ``quantity`` is an accuracy that some run has."""
    return quantity in ACCURACIES and bool(model.measured[quantity].notna().any())


def _why_unknown(model: Model, quantity: str) -> str:
    if quantity in ACCURACIES:
        return f"no run has {quantity}"
    number = "too few runs have" if model.measured["energy_per_rank_j"].notna().any() else "no run has"
    return f"{number} energy, so {quantity} is unknown"


def _measured_counts(model: Model, settings: pd.DataFrame) -> set[int]:
    """The counts at which the series of ``settings`` was measured."""
    rows = model.measured
    return set(rows.loc[(rows[SERIES] == settings[SERIES].iloc[0]).all(axis=1), "ranks"].astype(int))


def _candidates(model: Model, settings: pd.DataFrame, known: dict[str, np.ndarray], goal: Goal) -> pd.DataFrame:
    frame = pd.DataFrame({"ranks": settings["ranks"].astype(int), "nodes": settings["nodes"].astype(int)})
    frame["ratio_to_largest"] = frame["ranks"] / model.largest
    for name, draws in known.items():
        low, median, high = interval(draws)
        frame[f"predicted_{name}"], frame[f"predicted_{name}_low"], frame[f"predicted_{name}_high"] = median, low, high
    held = {limit.words: _holds(limit, known[limit.quantity]) for limit in goal.limits if limit.quantity in known}
    held |= _accuracies(model, settings, goal)
    unknown = [limit for limit in goal.limits if limit.quantity not in (*known, *ACCURACIES)]
    held |= {f"{limit.words} (not known)": np.zeros((len(frame), 1), dtype=bool) for limit in unknown}
    together = np.ones((len(frame), 1), dtype=bool)
    for holds in held.values():  # of each draw, or of all draws at once
        together = together & holds
    frame["probability_of_limits"] = together.mean(axis=1)
    frame["excluded_by"] = [
        _exclusion(place, frame["ratio_to_largest"].iloc[place], frame["probability_of_limits"].iloc[place], held, goal)
        for place in range(len(frame))
    ]
    return frame.reset_index(drop=True)


def _accuracies(model: Model, settings: pd.DataFrame, goal: Goal) -> dict[str, np.ndarray]:
    """{limit in words: whether each candidate meets it, (settings, 1)} of limits of accuracy."""
    found = {}
    for limit in goal.limits:
        if limit.quantity in ACCURACIES:
            told = np.array(verdicts(model.measured, settings, limit.quantity, limit.bound))[:, None]
            found[limit.words] = told == MET
            found[f"{limit.words} (not known there)"] = told != UNKNOWN
    return found


def _holds(limit: Limit, draws: np.ndarray) -> np.ndarray:
    return draws <= limit.bound if limit.at_most is not None else draws >= limit.bound


def _exclusion(place: int, ratio: float, probability: float, held: dict[str, np.ndarray], goal: Goal) -> str | None:
    """Why a candidate cannot be recommended; None if it can."""
    if ratio > FARTHEST:
        return f"more than {FARTHEST} times the largest measured count"
    if probability >= goal.probability:
        return None
    return min(reversed(held), key=lambda words: held[words][place].mean())


def _excluded(candidates: pd.DataFrame) -> str:
    by = candidates.groupby("excluded_by", sort=False)["ranks"].apply(lambda ranks: ", ".join(map(str, ranks)))
    return "; ".join(f"{words} excludes {ranks}" for words, ranks in by.items())


def narrowing(candidates: np.ndarray, target: np.ndarray) -> np.ndarray:
    """By which share one run at each candidate would narrow the interval of the target's mean, shape (candidates,).

    From the correlation of the draws' logarithms: a measurement leaves sqrt(1 - r^2) of the standard deviation.
    """
    x, y = np.log(candidates), np.log(target)
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean()
    correlation = (x @ y) / np.sqrt((x**2).sum(axis=1) * (y**2).sum())
    return 1 - np.sqrt(1 - np.clip(correlation, -1, 1) ** 2)


def next_measurement(candidates: pd.DataFrame) -> pd.Series | None:
    """The candidate of which a run would narrow the answer most; None if that is not known."""
    if "narrows_interval_by" not in candidates or candidates["narrows_interval_by"].isna().all():
        return None
    return candidates.loc[candidates["narrows_interval_by"].idxmax()]


def _reason(candidates: pd.DataFrame, known: dict[str, np.ndarray], goal: Goal, best: int, eligible: pd.Series) -> str:
    """The recommendation in one sentence."""
    row, name = candidates.iloc[best], goal.minimise
    among = known[name][eligible.to_numpy()]
    place = int(eligible[: best + 1].sum()) - 1
    surest = float((among.argmin(axis=0) == place).mean())
    limits = " and ".join(limit.words for limit in goal.limits)
    median, low, high = (f"{row[f'predicted_{name}{end}']:.4g}" for end in ("", "_low", "_high"))
    ranks = f"{row['ranks']} {'ranks' if row['ranks'] > 1 else 'rank'}"
    number = int(eligible.sum())
    told = f"the lowest of {number} candidates" if number > 1 else "the only candidate"
    sure = f"; it is the lowest with a probability of {surest:.0%}" if number > 1 else ""
    return (
        f"recommended: {ranks}; predicted {name} {median} ({low} to {high}), {told}"
        f"{f' with {limits}' if limits else ''}{sure}"
    )
