"""What the runs at a rank count say, beside the model: their own values, where the model does not fit, and failures.

A measured count is judged by its measurements. The model decides only about counts that were not measured, and only
where the measured ones agree with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from study.compare.estimates import Estimate
from study.compare.rank_answer import explain_superlinear
from study.core.wording import format_count, format_significant
from study.experiment.study import compute_work_growth
from study.prediction.runtime_model import Prediction, estimate_variances
from study.prediction.scaling_model import MISFIT, SEED
from study.prediction.settings import count_failure_kinds

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
        measured, low, high = (format_significant(value, digits=4) for value in (self.measured, self.low, self.high))
        return f"{measured} {unit} on {format_count(self.ranks, 'rank')} (the other counts give {low} to {high})"


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


def draw_judged(prediction: Prediction) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draws by which counts are compared, and whether the runtime of each is measured.

    The draws are those of a single run, each (settings, draws). At a measured count they scatter around the mean of its
    repeats: the deviation is that of the repeats of all points, or that of the fit where nothing was repeated. A
    quantity that the runs of a count do not have keeps its prediction.
    """
    here, rng = prediction.observations, np.random.default_rng(SEED)
    draws = {name: values.copy() for name, values in prediction.draws.items()}
    ranks = prediction.settings["ranks"].to_numpy(float)
    for quantity in ("runtime_s", "energy_per_rank_j"):
        if quantity not in draws:
            continue
        scatter = estimate_deviations(prediction.measured, quantity)
        for place, count in enumerate(ranks):
            if pd.isna(measured := here[quantity].get(count, np.nan)):
                continue
            deviation, freedom = scatter.loc[here["row"][count]]
            factors = draws[quantity][place] / prediction.means[quantity][place]
            if freedom:  # Student's t, since the mean of the repeats is uncertain too
                further = math.sqrt(1 + 1 / here[f"{quantity}_repeats"][count])
                factors = np.maximum(1 + deviation * further * rng.standard_t(freedom, len(factors)), 0.01)
            draws[quantity][place] = measured * factors / np.median(factors)
    if "energy_per_rank_j" in draws:
        draws["energy_job_j"] = ranks[:, None] * draws["energy_per_rank_j"]
    return draws, np.isin(ranks, here.index)


def estimate_deviations(observations: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Relative standard deviation of single runs at each point, and its degrees of freedom; (NaN, 0) without repeats.

    Pooled over the repeats of all points without those apart, or of the point's own repeats where they scatter more.
    """
    spread, repeats = (observations[f"{quantity}_{name}"].to_numpy(float) for name in ("spread", "repeats"))
    variances, freedom, _ = estimate_variances(spread / np.maximum(repeats - 1, 1), np.maximum(repeats - 1, 0))
    deviations = np.where(freedom > 0, np.sqrt(variances), np.nan)
    return pd.DataFrame({"deviation": deviations, "freedom": freedom}, observations.index)


def find_misfits(prediction: Prediction, held_out: Iterable[Prediction]) -> Iterator[Misfit]:
    """The measured runtime, and the energy, of a series that the other rank counts contradict most.

    A value contradicts them if it is outside the 99 % interval that the model predicts for it without its rank count,
    and differs from the median by more than `MISFIT`. It makes others look wrong too, so the worst one alone is told.
    So does that of the smallest count if more ranks do an epoch's work in less than their share of its time.

    held_out: of each count of the series, see `study.prediction.runtime_model.predict_held_out`.
    """
    here = prediction.observations
    worst: dict[str, tuple[float, Misfit]] = {}
    is_superlinear = bool(doubt_superlinear_counts(here))
    for each in held_out:
        ranks = int(each.settings["ranks"].iloc[0])
        for quantity in ("runtime_s", "energy_per_rank_j"):
            measured = here[quantity].get(ranks, np.nan) if quantity in each.draws else np.nan
            if np.isnan(measured):
                continue
            low, median, high = np.quantile(each.draws[quantity][0], OUTSIDE)
            distance = abs(math.log(median / measured))
            is_slow = is_superlinear and ranks == here.index.min() and quantity == "runtime_s"
            least = max(math.log1p(MISFIT), worst[quantity][0] if quantity in worst else 0.0)
            if (is_slow or not low <= measured <= high) and distance > least:
                worst[quantity] = distance, Misfit(ranks, quantity, float(measured), float(low), float(high))
    yield from (misfit for _, misfit in worst.values())


def count_failures(failed: pd.DataFrame, observations: pd.DataFrame) -> dict[int, Failures]:
    """{rank count: its failures} of one series.

    A run that missed the target is among the good ones too: its time is as good.

    failed: the failed runs of the series. observations: its measured points, with ``repeats``.
    """
    good = observations.set_index("ranks")["repeats"]
    failures = {}
    for ranks, rows in failed.groupby("gpus"):
        finished = int(good.get(ranks, 0)) + int((rows["status"] != "ok").sum())
        failures[int(ranks)] = Failures(int(ranks), len(rows), finished, count_failure_kinds(rows))
    return failures


def group_counts(reasons: Mapping[int, str]) -> list[tuple[str, str]]:
    """(reason, its counts, as ``24, 48``) of each reason in {rank count: why it is excluded}."""
    by_reason: dict[str, list[str]] = {}
    for count, why in reasons.items():
        by_reason.setdefault(why, []).append(str(count))
    return [(why, ", ".join(counts)) for why, counts in by_reason.items()]


def doubt_superlinear_counts(rows: pd.DataFrame) -> dict[int, str]:
    """{rank count: why its time is doubted, as it is shorter than its ranks can make it}, by the smallest count.

    rows: the observations of one series by rank count, of which larger batches may be faster by themselves.
    """
    base, smallest = rows.loc[rows.index.min()], int(rows.index.min())
    work = compute_work_growth(base["scaling"], base.get("sharding", "none"), rows.index.to_series() / smallest)
    speedups = (base["runtime_s"] / rows["runtime_s"] * work)[rows["batch"] <= base["batch"]]
    reasons = {
        int(ranks): explain_superlinear(Estimate(value), smallest, int(ranks)) for ranks, value in speedups.items()
    }
    return {ranks: why for ranks, why in reasons.items() if why}


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
