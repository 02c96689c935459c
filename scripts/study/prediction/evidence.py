"""What the runs at a rank count say, beside the model: their own values, where the model does not fit, and failures.

A measured count is judged by its measurements. The model decides only about counts that were not measured, and only
where the measured ones agree with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from study.core.statistics import MUCH_LARGER, pool_variance
from study.core.wording import format_count, format_significant
from study.prediction.runtime_model import Prediction, fit_runtime_model, predict
from study.prediction.scaling_model import LEAST_COUNTS, MISFIT
from study.prediction.settings import SERIES, count_failure_kinds

SEED = 2021
SUPERLINEAR = 1.25  # efficiency that no scaling explains: the smallest count is slow for another reason
OUTSIDE = (0.005, 0.5, 0.995)  # shares between which a measured value is no misfit


@dataclass(frozen=True)
class Misfit:
    """A measured value that the other counts contradict. low, high: of their prediction (99 % interval)."""

    ranks: int
    quantity: str
    measured: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """``7695 s on 8 ranks (the other counts give 474 to 1271)``."""
        unit = {"s": "s", "j": "J"}[self.quantity.rsplit("_", 1)[1]]
        ranks = format_count(self.ranks, "rank")
        measured, low, high = (format_significant(value, digits=4) for value in (self.measured, self.low, self.high))
        return f"{measured} {unit} on {ranks} (the other counts give {low} to {high})"


@dataclass(frozen=True)
class Failures:
    """The failed runs at one rank count. finished: all runs there, with the failed ones."""

    ranks: int
    failed: int
    finished: int
    kinds: str

    @property
    def words(self) -> str:
        """``3 of 3 runs on 24 ranks failed (oom 3)``."""
        runs = format_count(self.finished, "run")
        return f"{self.failed} of {runs} on {format_count(self.ranks, 'rank')} failed ({self.kinds})"


def get_observations(prediction: Prediction) -> pd.DataFrame:
    """The observations of the predicted series, by rank count."""
    rows = prediction.measured
    return rows[(rows[SERIES] == prediction.settings[SERIES].iloc[0]).all(axis=1)].set_index("ranks")


def draw_judged(prediction: Prediction) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draws by which counts are compared, and whether the runtime of each is measured.

    The draws are those of a single run, each (settings, draws). At a measured count they scatter around the mean of its
    repeats: the deviation is that of the repeats of all points, or that of the fit where nothing was repeated. A
    quantity that the runs of a count do not have keeps its prediction.
    """
    here, rng = get_observations(prediction), np.random.default_rng(SEED)
    draws = {name: values.copy() for name, values in prediction.draws.items()}
    ranks = prediction.settings["ranks"].to_numpy(float)
    is_measured = np.array([count in here.index for count in ranks])
    for place in np.flatnonzero(is_measured):
        row = here.loc[ranks[place]]
        draws["runtime_s"][place] = row["runtime_s"] * _draw_scatter(prediction, "runtime_s", row, place, rng)
        if "energy_job_j" in draws and pd.notna(row["energy_per_rank_j"]):
            factor = _draw_scatter(prediction, "energy_per_rank_j", row, place, rng)
            draws["energy_per_rank_j"][place] = row["energy_per_rank_j"] * factor
            draws["energy_job_j"][place] = ranks[place] * draws["energy_per_rank_j"][place]
            draws["power_per_rank_w"][place] = draws["energy_per_rank_j"][place] / draws["runtime_s"][place]
    return draws, is_measured


def _draw_scatter(
    prediction: Prediction, quantity: str, row: pd.Series, place: int, rng: np.random.Generator
) -> np.ndarray:
    """Factors of a single run around the mean of the repeats, which is itself uncertain; shape (draws,). Median: 1."""
    deviation, freedom = _estimate_deviation(prediction.measured, quantity, row)
    factors = prediction.draws[quantity][place] / prediction.means[quantity][place]
    if freedom:
        further = math.sqrt(1 + 1 / row[f"{quantity}_repeats"])
        factors = np.maximum(1 + deviation * further * rng.standard_t(freedom, len(factors)), 0.01)
    return factors / np.median(factors)


def _estimate_deviation(rows: pd.DataFrame, quantity: str, row: pd.Series) -> tuple[float, int]:
    """Relative standard deviation of single runs at a point, and its degrees of freedom; (NaN, 0) without repeats.

    Pooled over the repeats of all points without those apart, or of the point's own repeats where they scatter more.
    """
    if f"{quantity}_spread" not in rows:
        return math.nan, 0
    rows = rows[rows[quantity].notna()]
    of_each = rows[f"{quantity}_repeats"].to_numpy(float) - 1
    pooled, freedom = pool_variance(rows[f"{quantity}_spread"].to_numpy(float) / np.maximum(of_each, 1), of_each)
    if not freedom:
        return math.nan, 0
    of_point = int(row[f"{quantity}_repeats"]) - 1
    own = float(row[f"{quantity}_spread"]) / max(of_point, 1)
    return (math.sqrt(own), of_point) if own > MUCH_LARGER * pooled else (math.sqrt(pooled), int(freedom))


def find_misfits(prediction: Prediction) -> Iterator[Misfit]:
    """The measured runtime, and the energy, of a series that the other rank counts contradict most.

    A value contradicts them if it is outside the 99 % interval that the model predicts for it without its rank count,
    and differs from the median by more than `MISFIT`. It makes others look wrong too, so the worst one alone is told.
    So does that of the smallest count if more ranks do an epoch's work in less than their share of its time.
    """
    here, rows = get_observations(prediction), prediction.measured
    worst: dict[str, tuple[float, Misfit]] = {}
    if len(here) <= LEAST_COUNTS:
        return
    per_sample = here["runtime_s"] / here["epochs_per_rank"] / here["samples"]
    is_superlinear = bool(per_sample.min() < per_sample.loc[here.index.min()] / SUPERLINEAR)
    for place, ranks in enumerate(prediction.settings["ranks"]):
        if ranks not in here.index:
            continue
        setting = prediction.settings.iloc[[place]]
        model = fit_runtime_model(rows[rows["ranks"] != ranks])
        if not model.has_series(setting):
            continue
        draws = predict(model, setting).draws
        for quantity in ("runtime_s", "energy_per_rank_j"):
            measured = here[quantity].get(ranks, np.nan) if quantity in draws and quantity in here else np.nan
            if np.isnan(measured):
                continue
            low, median, high = np.quantile(draws[quantity][0], OUTSIDE)
            distance = abs(math.log(median / measured))
            is_slow = is_superlinear and ranks == here.index.min() and quantity == "runtime_s"
            if (is_slow or not low <= measured <= high) and distance > max(
                math.log1p(MISFIT), worst.get(quantity, (0,))[0]
            ):
                worst[quantity] = distance, Misfit(int(ranks), quantity, float(measured), float(low), float(high))
    yield from (misfit for _, misfit in worst.values())


def count_failures(failed: pd.DataFrame, observations: pd.DataFrame) -> dict[int, Failures]:
    """{rank count: its failures} of one series.

    failed: the failed runs of the series. observations: its measured points, with ``repeats``.
    """
    good = dict(zip(observations["ranks"].astype(int), observations["repeats"].astype(int), strict=True))
    if failed.empty:
        return {}
    return {
        int(ranks): Failures(
            int(ranks), len(rows), _count_finished(rows, good.get(int(ranks), 0)), count_failure_kinds(rows)
        )
        for ranks, rows in failed.groupby("gpus")
    }


def describe_excluded(reasons: Mapping[int, str]) -> list[str]:
    """``Excluded: 24, 48, as 3 of 3 runs on 24 ranks failed (oom 3)``, of each reason of `exclude_failing_counts`."""
    by_reason: dict[str, list[str]] = {}
    for count, why in reasons.items():
        by_reason.setdefault(why, []).append(str(count))
    return [f"Excluded: {', '.join(counts)}, as {why}" for why, counts in by_reason.items()]


def _count_finished(failed: pd.DataFrame, good: int) -> int:
    """All runs at a count. A run that missed the target is among the good ones too: its time is as good."""
    return good + int((failed["status"] != "ok").sum())


def exclude_failing_counts(
    failures: dict[int, Failures], succeeded: set[int], counts: list[int], probability: float
) -> dict[int, str]:
    """{rank count: why its failures, or those of smaller counts, exclude it}.

    A count is excluded if a smaller share of its runs succeeded than ``probability``. So is a count without runs that
    is larger than such a count, unless a still larger one succeeded: what fails on 24 ranks may fail on 48 too.

    succeeded: counts with a successful run. counts: the candidates.
    """
    bad = {ranks: each for ranks, each in failures.items() if 1 - each.failed / each.finished < probability}
    largest = max(succeeded - set(bad), default=0)
    limit = min((ranks for ranks in bad if ranks > largest), default=None)
    reasons = {}
    for ranks in counts:
        if ranks in bad:
            reasons[ranks] = bad[ranks].words
        elif limit is not None and ranks > limit and ranks not in succeeded:
            reasons[ranks] = f"{bad[limit].words}, and no larger count succeeded"
    return reasons
