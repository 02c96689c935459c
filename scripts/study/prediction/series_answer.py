"""What a series of points answers: predictions, the knee, a recommendation, and what to measure next, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.wording import format_count, format_sampled_share, format_significant, format_with_multiple
from study.prediction.answers import list_doublings
from study.prediction.goals import Goal
from study.prediction.points import Series
from study.prediction.recommend import LEAST_NARROWING, Recommendation, find_next_measurement, recommend
from study.prediction.runtime_model import Prediction, RunsOfSeries
from study.prediction.scaling_model import LEAST_COUNTS, ScalingModel, load_calibration
from study.prediction.settings import NOT_EXTRAPOLATED

FARTHEST_SHOWN = 8  # times the largest measured count, by default
PERFECT = 0.98  # efficiency that counts as perfect scaling
SUPERLINEAR = 1.05
SLOWER = 1.02  # a time that counts as longer than another
MISTAKEN, FLAT_SLOPE = 0.3, 0.05  # of log time against log ranks: falls, or does not fall, as of the other kind of work
LIKELY = 0.7  # probability of a knee: with 0.5, 6 of 71 knees of public series were too large, with 0.7 3
MOST_COUNTS = 300  # of a series, measured and to predict: covariances of all of them are kept
COLUMNS = ["series", "ranks", "fitted", "low", "median", "high"]
NO_KEY = {"scaling": "strong", "epochs": 1, "batch_size": 1, "batch_scaling": "none", "link_mbit_per_s": 0,
          "batch": 1, "learning_rate": 1.0, "epochs_per_rank": 1}  # fmt: skip


@dataclass(frozen=True)
class SeriesAnswer:
    """The answer for one series.

    Args:
        series: its points.
        predictions: a row per count: `COLUMNS`; low and high are empty where nothing is predicted.
        sentences: the answer in words, the most important first.
        recommendation: None with fewer than `LEAST_COUNTS` counts.
        knee: (count, probability) or None.
    """

    series: Series
    predictions: pd.DataFrame
    sentences: list[str]
    recommendation: Recommendation | None
    knee: tuple[int, float] | None

    def predictions_in_unit(self) -> pd.DataFrame:
        """The predictions in the unit that was measured, which is in a column ``unit`` unless it is s."""
        table, ranks = self.predictions, self.predictions["ranks"].to_numpy(float)
        if self.series.unit is None:
            return table
        ends = {name: self.series.to_unit(table[name].to_numpy(float), ranks) for name in COLUMNS[3:]}
        return table.assign(median=ends["median"], low=ends["high"], high=ends["low"], unit=self.series.unit)

    @property
    def pick(self) -> int | None:
        """The count that is recommended; None if none is."""
        return self.recommendation.pick if self.recommendation else None


def answer(
    series: Series, counts_to_predict: Sequence[int], goal: Goal, least_efficiency: float = 0.5, amount: float = 1.0
) -> SeriesAnswer:
    """The answer for a series.

    Args:
        series: of `study.prediction.points`.
        counts_to_predict: by default doublings up to `FARTHEST_SHOWN` times the largest measured one.
        goal: by which a count is recommended.
        least_efficiency: of a doubling before the knee: its speedup less 1.
        amount: steps, epochs or runs of the whole job on the smallest measured count.

    Raises: `StudyError` for more than `MOST_COUNTS` counts.
    """
    questions = [*_ask_about_work(series), *_ask_about_amount(series, amount)]
    notes = [*_describe_costs(series, goal), *series.notes]
    model = series.fit_model()
    if model is None:
        first = int(series.counts[0])
        words = (
            f"measured on {first}: nothing beyond is predicted, for which {LEAST_COUNTS} rank counts are needed; "
            f"measure on {2 * first} too"
        )
        row = {"series": series.name, "ranks": first, "fitted": False, "low": np.nan, "high": np.nan}
        table = pd.DataFrame([row | {"median": series.times[0]}])[COLUMNS]
        return SeriesAnswer(series, table, [*questions, words, *notes], None, None)
    farthest = int(FARTHEST_SHOWN * model.largest)
    further = counts_to_predict or list_doublings(2 * int(model.largest), farthest)
    counts = sorted({*series.counts.astype(int), *map(int, further)})
    if len(counts) > MOST_COUNTS:
        raise StudyError(
            f"series {series.name}: {len(counts)} rank counts, measured and to predict; at most {MOST_COUNTS} are "
            "expected"
        )
    smallest, most = int(series.counts[0]), _compute_most_ranks(series, amount)
    judged = [count for count in counts if smallest <= count <= most]  # the smallest is the base of efficiency
    job = _Job(replace(series, points=series.points[series.points["ranks"] <= most]), judged, amount)
    is_throughput = series.is_throughput and goal.minimise == "runtime_s" and not job.load.any()
    to_words = job.to_words if is_throughput else None
    recommendation = recommend(job.predict(model), goal, to_words=to_words, is_highest=is_throughput)
    knee = _find_knee(series, model, least_efficiency, min(farthest, most), amount)
    sentences = [
        *questions,
        f"goal {goal.name}: {recommendation.reason}",
        _describe_knee(knee, least_efficiency, farthest if farthest <= most else np.inf),
        *_describe_shape(series),
        *_describe_limits(series, model, counts, most, amount),
        *_describe_next(series, recommendation, "throughput" if is_throughput else goal.minimise),
        *_describe_noise(series),
    ]
    if not is_throughput:
        sentences[len(questions)] += _describe_job(series, recommendation, amount)
    interval = dict(zip(COLUMNS[3:], model.predict_interval(np.array(counts, dtype=float)), strict=True))
    is_fitted = np.isin(counts, series.counts)
    table = pd.DataFrame({"series": series.name, "ranks": counts, "fitted": is_fitted, **interval})
    if series.imported:
        table["origin"] = series.list_origins(table["ranks"].to_numpy())
    return SeriesAnswer(series, table, [*sentences, *notes], recommendation, knee)


def _compute_most_ranks(series: Series, amount: float) -> float:
    """On how many ranks each still has one of the job's epochs, which are divided whole; infinite for other work.

    amount: of epochs on the smallest count. 1 is the default, of whoever asks for the time of an epoch only.
    """
    is_divided = series.work == "epochs" and series.quantity == "time_per_epoch_s" and amount > 1
    return amount * float(series.counts[0]) if is_divided else np.inf


def _describe_job(series: Series, recommendation: Recommendation, amount: float) -> str:
    """Sentences on the job whose runtime and cost a recommendation has, unless that is one measured run."""
    if series.is_fixed:
        if series.quantity == "runtime_s" and amount == 1:
            return ""
        return f". The runtime_s is that of a job of {amount:.10g} x {_name_time(series)} (--amount)"
    smallest, pick = int(series.counts[0]), recommendation.pick
    first, does = format_count(smallest, "rank"), ""
    if pick is not None and pick in series.counts:
        time = format_significant(float(series.times[series.counts == pick][0]), digits=4)
        ranks = format_count(pick, "rank")
        does = f" (in their {time} s, {ranks} do {pick / smallest:.4g} x the work of {first})"
    return (
        f". The runtime_s is that of a job of {amount:.10g} x the work of {first} in {_name_time(series)} (--amount), "
        f"which more ranks share{does}"
    )


def _describe_noise(series: Series) -> Iterator[str]:
    """Where the interval comes from if it is not that of repeats, and what the times of runs include."""
    if series.runs is not None and series.runs.model.is_mixed:
        yield (
            "the times per epoch include an unknown part of the first epoch's overhead, which is taken for a cost of "
            "more ranks; measure one of these counts with another number of epochs"
        )
    if (series.points["scatter"] == 0).all():
        is_once = (series.points["repeats"] == 1).all()
        why = "each count has one value, so its scatter is not known" if is_once else "repeats do not differ"
        yield (
            f"{why}: that of a usual measurement is taken, "
            f"{load_calibration()['noise']:.1%} (repeats, or a column time_std, tell that of yours)"
        )


def _describe_costs(series: Series, goal: Goal) -> Iterator[str]:
    """What the price is of, where there is one, and what a node is taken to be where nobody says."""
    if goal.price:
        yield f"costs are at {goal.price:g} per node-hour, in the currency of that price"
    if series.per_node is None and ({"cost", "node_hours"} & {*goal.quantities} or goal.price):
        yield (
            "each rank is counted as a node, so costs and node-hours are too high if nodes have more ranks "
            "(--ranks-per-node)"
        )


def _ask_about_amount(series: Series, amount: float) -> Iterator[str]:
    """A sentence where loading takes longer than the rest of the job on its smallest count, as of a job of one step."""
    load, rest = series.loads(series.counts)[0], series.times[0] * amount
    if load > rest:
        yield (
            f"is --amount {amount:.10g} meant? On {format_count(int(series.counts[0]), 'rank')} this job loads for "
            f"{format_significant(load, digits=4)} s and then takes {format_significant(rest, digits=4)} s "
            f"({amount:.10g} x {_name_time(series)}); --amount is the number of steps or epochs of the whole job"
        )


def _ask_about_work(series: Series) -> Iterator[str]:
    """Sentences where the times scale as those of another kind of work, or of another owner of a throughput."""
    if len(series.points) < 2:
        return
    slope = float(np.polyfit(np.log(series.counts), np.log(series.times), 1)[0])
    of_one_unit = slope if series.is_fixed else slope - 1  # of the time in which all ranks do one unit of work
    if series.owner == "all" and of_one_unit > -FLAT_SLOPE:
        yield (
            "is the throughput that of one rank? It hardly grows with the ranks; then its unit is such as images/s/GPU "
            "(--unit)"
        )
    elif series.owner in ("rank", "node") and of_one_unit < -1 - MISTAKEN:
        yield (
            f"is the throughput that of all ranks? That of one {series.owner} would not grow so with the ranks; then "
            "its unit is such as images/s (--unit)"
        )
    elif not series.owner and not series.is_fixed and slope < -MISTAKEN:
        yield (
            f"is --work {series.work} meant? {series.quantity} falls with the ranks as where they share the work "
            "(--work fixed); if each rank's work were the same, it could not"
        )
    elif not series.owner and series.is_fixed and slope > -FLAT_SLOPE:
        yield (
            f"is --work {series.work} meant? {series.quantity} hardly falls with the ranks, as where each rank's work "
            "is the same (--work per_rank)"
        )
    if series.work == "epochs" and series.quantity == "time_per_epoch_s":
        yield (
            "are the times per epoch those of later epochs? Where epochs are divided, a rank trains fewer on more "
            "ranks, so a mean over all epochs has more of the first one's overhead there, which is taken for a cost "
            "of more ranks: give the steady time per epoch, or runtime_s"
        )


def _describe_next(series: Series, recommendation: Recommendation, quantity: str) -> Iterator[str]:
    """The measurement to make next: what narrows the answer, else what could show that another count is better."""
    following, pick = find_next_measurement(recommendation.candidates), recommendation.pick
    if following is None:
        return
    larger = series.counts[series.counts > (pick or 0)]
    advised = recommendation.candidates[recommendation.candidates["narrows_interval_by"].notna()]["ranks"]
    above = advised[advised > (pick or 0)]
    count = int(following["ranks"])
    if following["narrows_interval_by"] >= LEAST_NARROWING:
        share = following["narrows_interval_by"]
        why = f"it is expected to narrow the interval of {quantity} by {share:.0%}"
    elif pick is None:
        why = "no count is recommended, and that shows whether another one meets the goal"
    elif len(larger):
        nodes = int(series.per_node or 1)
        middle = (pick + int(larger[0])) // 2
        count = middle // nodes * nodes if middle // nodes * nodes > pick else middle  # whole nodes
        why = f"the recommended count and {larger[0]:.0f} ranks, which is worse, are measured"
        if count == pick:
            yield f"no further measurement is advised: {why}"
            return
        why += ", and the best one may lie between"
    elif len(above):
        count, why = int(above.min()), "the recommended count is measured, and that shows whether more ranks pay"
    else:
        return
    yield f"next, measure on {format_count(count, 'rank')}: {why}"


def _name_time(series: Series) -> str:
    names = {"time_per_epoch_s": "one epoch", "runtime_s": "one run", "throughput": "the time of the table"}
    return names.get(series.quantity, "one step")


def _describe_shape(series: Series) -> Iterator[str]:
    """How the measured counts, of which there are two at least, scale, in words."""
    counts = series.counts
    job = series.times * series.get_job_shares(counts, 1.0)
    efficiency = job[0] * counts[0] / (job * counts)
    first, last = int(counts[0]), int(counts[-1])
    if (efficiency >= SUPERLINEAR).any():
        at = int(counts[efficiency.argmax()])
        yield (
            f"superlinear: efficiency {efficiency.max():.0%} on {at} ranks against {first}; the smallest count is slow "
            "for another reason (memory, caches, input), so measure without it before you trust a prediction"
        )
    elif (efficiency >= PERFECT).all():
        yield f"perfect scaling from {first} to {last} ranks: efficiency {efficiency[-1]:.0%}, within the noise"
    else:
        yield f"efficiency {efficiency[-1]:.0%} on {last} ranks against {first}"
    slower = np.flatnonzero(job[1:] > SLOWER * job[:-1])
    half = np.flatnonzero(counts <= counts[-1] / 2)
    if len(slower):
        place = int(slower[0])
        yield (
            f"the same work takes longer on {counts[place + 1]:.0f} ranks than on {counts[place]:.0f}: if repeats "
            "confirm it, a limit lies between them"
        )
    elif len(job) > 2 and len(half) and job[-1] > job[half[-1]] / 1.1:
        gain = 1 - job[-1] / job[half[-1]]
        yield f"saturated: from {counts[half[-1]]:.0f} to {last} ranks the same work gains {gain:.0%}"


def _describe_limits(
    series: Series, model: ScalingModel | RunsOfSeries, counts: Sequence[int], most: float, amount: float
) -> Iterator[str]:
    """Sentences on counts that are not recommended, and on a point that the others do not predict."""
    first = int(series.counts[0])
    if counts[-1] > most:
        yield (
            f"counts above {int(most)} are not recommended: of --amount {amount:.10g} on "
            f"{format_count(first, 'rank')}, each of their ranks would have less than one epoch"
        )
    misfit, count = model.find_misfit()
    if misfit:
        yield (
            f"the time on {format_count(count, 'rank')} is {misfit:.0%} from what the other counts predict "
            "there: the points are noisy, or a limit begins at it"
        )
    if counts[0] < first:
        yield f"counts below {first}, the smallest measured one, are shown, and not recommended"
    if counts[-1] > FARTHEST_SHOWN * model.largest:
        yield (
            f"counts above {FARTHEST_SHOWN * model.largest:.0f} are more than {FARTHEST_SHOWN} times the largest "
            "measured one: they are shown, and not recommended, and their intervals hold less often"
        )


def _find_knee(
    series: Series, model: ScalingModel | RunsOfSeries, least: float, most: float, amount: float
) -> tuple[int, float] | None:
    """The largest count up to which every doubling is efficient with a probability of `LIKELY`, and the probability.

    The efficiency of a doubling is the speedup of the job, with its loading, less 1: the share of a rank's work that
    each added rank does.
    """
    counts = list_doublings(int(series.counts[0]), most)
    runtime = _Job(series, counts, amount).draw_runtime(model)
    holds = np.cumprod(runtime[:-1] / runtime[1:] - 1 >= least, axis=0).mean(axis=1)
    likely = np.flatnonzero(holds >= LIKELY)
    return (counts[int(likely[-1]) + 1], float(holds[likely[-1]])) if len(likely) else None


def _describe_knee(knee: tuple[int, float] | None, least: float, farthest: float) -> str:
    if knee is None:
        return f"knee: not even the first doubling is likely to speed the job up by {1 + least:g}"
    beyond = "; it may lie beyond, where nothing is predicted" if 2 * knee[0] > farthest else ""
    return (
        f"knee: {format_count(knee[0], 'rank')}; every doubling up to it speeds the job up by at least {1 + least:g} "
        f"with a predicted probability of {format_sampled_share(knee[1])}{beyond}"
    )


class _Job:
    """A series as a job of fixed work, in the words of `study.prediction.recommend`."""

    def __init__(self, series: Series, counts: Sequence[int], amount: float) -> None:
        self.series, self.counts, self.amount = series, np.array(counts, dtype=float), amount
        self.share, self.load = series.get_job_shares(self.counts, amount), series.loads(self.counts)

    def _settings(self, counts: np.ndarray) -> pd.DataFrame:
        nodes = np.ceil(counts / (self.series.per_node or 1))
        return pd.DataFrame({"ranks": counts, "nodes": nodes, "sharding": "none", **NO_KEY})

    def tabulate_measured(self) -> pd.DataFrame:
        """The measured counts, with the columns of `settings.summarize_points` that `recommend` reads."""
        series, points, counts = self.series, self.series.points, self.series.counts
        share, noise = series.get_job_shares(counts, self.amount), load_calibration()["noise"] ** 2
        is_repeated = (points["repeats"] > 1) | (points["scatter"] > 0)
        repeats = np.maximum(points["repeats"].to_numpy(), 2)  # of one point the noise is known too
        return self._settings(counts).assign(
            runtime_s=series.times * share + series.loads(counts),
            energy_per_rank_j=points["energy_j"].to_numpy(float) * share / counts,
            runtime_s_repeats=repeats,
            energy_per_rank_j_repeats=repeats,
            runtime_s_spread=(repeats - 1) * np.where(is_repeated, series.variances[0], noise),
            energy_per_rank_j_spread=(repeats - 1) * noise,
            **dict.fromkeys(NOT_EXTRAPOLATED, np.nan),
        )

    def to_words(self, ranks: int, runtime: tuple[float, float, float]) -> str:
        """``throughput 1234 images/s (1200 to 1260)`` of runtimes of the job."""
        series = self.series
        times = np.array(runtime)[::-1] / series.get_job_shares(np.array([ranks]), self.amount)
        low, median, high = (format_with_multiple(float(value)) for value in series.to_unit(times, float(ranks)))
        return f"throughput {median} {series.unit} ({low} to {high})"

    def draw_runtime(self, model: ScalingModel | RunsOfSeries, of_mean: bool = False) -> np.ndarray:
        """Draws of the whole job's runtime at all counts, with its loading, (counts, draws)."""
        return model.draw(self.counts, of_mean=of_mean) * self.share[:, None] + self.load[:, None]

    def predict(self, model: ScalingModel | RunsOfSeries) -> Prediction:
        """Draws of the whole job at all counts; its energy from the mean power of a rank, held beyond the measured."""
        draws, means = ({"runtime_s": self.draw_runtime(model, of_mean)} for of_mean in (False, True))
        watts = self.series.compute_watts(self.counts)
        if watts is not None and self.series.points["energy_j"].notna().sum() >= LEAST_COUNTS:
            for quantities in (draws, means):  # the measured energy is without loading
                per_rank = watts[:, None] * (quantities["runtime_s"] - self.load[:, None])
                quantities |= {"energy_per_rank_j": per_rank, "energy_job_j": self.counts[:, None] * per_rank}
        return Prediction(self._settings(self.counts), draws, means, self.tabulate_measured(), model.largest)
