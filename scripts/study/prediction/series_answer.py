"""What a series of points answers: predictions, the knee, a recommendation, and what to measure next, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.wording import format_count, format_sampled_share, format_significant
from study.prediction.goals import Goal
from study.prediction.points import Series
from study.prediction.recommend import (
    LEAST_NARROWING,
    Recommendation,
    find_best_measured,
    find_next_measurement,
    recommend,
)
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
        of_measured: without a recommendation, the measured count that suits the goal, or None.
    """

    series: Series
    predictions: pd.DataFrame
    sentences: list[str]
    recommendation: Recommendation | None
    knee: tuple[int, float] | None
    of_measured: int | None = None

    def predictions_in_unit(self) -> pd.DataFrame:
        """The predictions in the unit that was measured: times in s or throughputs, these with a column ``unit``."""
        table, ranks = self.predictions, self.predictions["ranks"].to_numpy(float)
        values = {name: self.series.to_unit(table[name].to_numpy(float), ranks) for name in ("low", "median", "high")}
        if self.series.unit is None:
            return table
        return table.assign(low=values["high"], median=values["median"], high=values["low"], unit=self.series.unit)

    @property
    def pick(self) -> int | None:
        """The count that is recommended or, of too few for a prediction, the measured one that suits the goal."""
        return self.recommendation.pick if self.recommendation else self.of_measured


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
    model = series.fit_model()
    if model is None:
        shared = _drop_too_many_ranks(series, amount)
        best = (
            find_best_measured(_Job(shared, shared.counts, amount).measured(), goal) if len(series.points) > 1 else None
        )
        words = [*_ask_about_work(series), *_ask_about_amount(series, amount), *_describe_too_few(series, goal, best)]
        words += [*_describe_price(goal), *_describe_unknown_nodes(series, goal), *series.notes]
        return SeriesAnswer(series, _tabulate_measured(series), words, None, None, best)
    counts = sorted({*(int(count) for count in series.counts), *(counts_to_predict or _list_doublings(model))})
    if len(counts) > MOST_COUNTS:
        raise StudyError(
            f"series {series.name}: {len(counts)} rank counts, measured and to predict; at most {MOST_COUNTS} are "
            "expected"
        )
    smallest = int(series.counts[0])  # the base of efficiency, below which nothing is recommended
    most = _compute_most_ranks(series, amount)
    job = _Job(
        _drop_too_many_ranks(series, amount),
        np.array([count for count in counts if smallest <= count <= most], dtype=float),
        amount,
    )
    is_throughput = series.unit is not None and goal.minimise == "runtime_s" and not job.load.any()
    recommendation = recommend(job.predict(model), goal, to_words=job.to_words if is_throughput else None)
    knee = _find_knee(series, model, least_efficiency, amount)
    farthest = FARTHEST_SHOWN * model.largest
    knee_words = _describe_knee(knee, least_efficiency, farthest if farthest <= most else np.inf)
    first = [*_ask_about_work(series), *_ask_about_amount(series, amount)]
    sentences = [
        *first,
        _describe_recommendation(series, goal, recommendation, amount, is_throughput),
        knee_words,
        *_describe_shape(series),
    ]
    if counts[-1] > most:
        sentences.append(
            f"counts above {int(most)} are not recommended: of --amount {amount:.10g} on "
            f"{format_count(smallest, 'rank')}, each of their ranks would have less than one epoch"
        )
    sentences += [
        *_describe_doubts(series, model, counts),
        *_describe_next(series, recommendation, "throughput" if is_throughput else goal.minimise),
    ]
    if series.runs is not None and series.runs.model.is_mixed:
        sentences.append(
            "the times per epoch include an unknown part of the first epoch's overhead, which is taken for a cost of "
            "more ranks; measure one of these counts with another number of epochs"
        )
    sentences += [*_describe_noise(series), *_describe_price(goal), *_describe_unknown_nodes(series, goal)]
    return SeriesAnswer(
        series, _tabulate_predicted(series, model, counts), [*sentences, *series.notes], recommendation, knee
    )


def _compute_most_ranks(series: Series, amount: float) -> float:
    """On how many ranks each still has one of the job's epochs, which are divided whole; infinite for other work.

    amount: of epochs on the smallest count. 1 is the default, of whoever asks for the time of an epoch only.
    """
    is_divided = series.work == "epochs" and series.quantity == "time_per_epoch_s" and amount > 1
    return amount * float(series.counts[0]) if is_divided else np.inf


def _drop_too_many_ranks(series: Series, amount: float) -> Series:
    """The series without the counts that are too many for the job, see `_compute_most_ranks`."""
    return replace(series, points=series.points[series.points["ranks"] <= _compute_most_ranks(series, amount)])


def _describe_recommendation(
    series: Series, goal: Goal, recommendation: Recommendation, amount: float, is_throughput: bool
) -> str:
    """The recommendation, and what the job is whose runtime and cost it has, unless that is one measured run."""
    sentence, smallest = f"goal {goal.name}: {recommendation.reason}", int(series.counts[0])
    if is_throughput:
        return sentence
    if series.is_fixed:
        if series.quantity == "runtime_s" and amount == 1:
            return sentence
        return f"{sentence}. The runtime_s is that of a job of {amount:.10g} x {_name_time(series)} (--amount)"
    first = format_count(smallest, "rank")
    sentence += (
        f". The runtime_s is that of a job of {amount:.10g} x the work of {first} in {_name_time(series)} (--amount), "
        "which more ranks share"
    )
    if recommendation.pick is not None and recommendation.pick in series.counts:
        time = float(series.points["time"][series.counts == recommendation.pick].iloc[0])
        sentence += (
            f" (in their {format_significant(time, digits=4)} s, {format_count(recommendation.pick, 'rank')} do "
            f"{recommendation.pick / smallest:.4g} x the work of {first})"
        )
    return sentence


def _describe_noise(series: Series) -> Iterator[str]:
    """Where the interval of a measured count comes from, if no count has repeats that differ, or a deviation."""
    if (series.points["scatter"] == 0).all():
        is_once = (series.points["repeats"] == 1).all()
        why = "each count has one value, so its scatter is not known" if is_once else "repeats do not differ"
        yield (
            f"{why}: that of a usual measurement is taken, "
            f"{load_calibration()['noise']:.1%} (repeats, or a column time_std, tell that of yours)"
        )


def _describe_price(goal: Goal) -> Iterator[str]:
    """What the price is of, where there is one."""
    if goal.price:
        yield f"costs are at {goal.price:g} per node-hour, in the currency of that price"


def _describe_unknown_nodes(series: Series, goal: Goal) -> Iterator[str]:
    """What a node is taken to be, where the goal depends on it and nobody says."""
    depends = {"cost", "node_hours"} & {goal.minimise, *(limit.quantity for limit in goal.limits)}
    if series.per_node is None and (depends or goal.price):
        yield (
            "each rank is counted as a node, so costs and node-hours are too high if nodes have more ranks "
            "(--ranks-per-node)"
        )


def _ask_about_amount(series: Series, amount: float) -> Iterator[str]:
    """A sentence where loading takes longer than the rest of the job on its smallest count, as of a job of one step."""
    load, rest = series.loads(series.counts)[0], series.points["time"].iloc[0] * amount
    if load > rest:
        yield (
            f"is --amount {amount:.10g} meant? On {format_count(int(series.counts[0]), 'rank')} this job loads for "
            f"{format_significant(load, digits=4)} s and then takes {format_significant(rest, digits=4)} s "
            f"({amount:.10g} x {_name_time(series)}); --amount is the number of steps or epochs of the whole job"
        )


def _ask_about_work(series: Series) -> Iterator[str]:
    """A sentence where the times scale as those of another kind of work."""
    if len(series.points) < 2:
        return
    slope = float(np.polyfit(np.log(series.counts), np.log(series.points["time"].to_numpy(float)), 1)[0])
    if series.owner:
        yield from _ask_about_owner(series.owner, slope if series.is_fixed else slope - 1)
    elif not series.is_fixed and slope < -MISTAKEN:
        yield (
            f"is --work {series.work} meant? {series.quantity} falls with the ranks as where they share the work "
            "(--work fixed); if each rank's work were the same, it could not"
        )
    elif series.is_fixed and slope > -FLAT_SLOPE:
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


def _ask_about_owner(owner: str, slope: float) -> Iterator[str]:
    """A sentence where a throughput grows as that of one rank does, or as that of all.

    owner: as its unit says. slope: of the logarithm of the time in which all ranks do one unit of work.
    """
    if owner == "all" and slope > -FLAT_SLOPE:
        yield (
            "is the throughput that of one rank? It hardly grows with the ranks; then its unit is such as images/s/GPU "
            "(--unit)"
        )
    elif owner != "all" and slope < -1 - MISTAKEN:
        yield (
            f"is the throughput that of all ranks? That of one {owner} would not grow so with the ranks; then its unit "
            "is such as images/s (--unit)"
        )


def _describe_next(series: Series, recommendation: Recommendation, quantity: str) -> Iterator[str]:
    """The measurement to make next: what narrows the answer, else what could show that another count is better."""
    following, pick = find_next_measurement(recommendation.candidates), recommendation.pick
    if following is None:
        return
    if following["narrows_interval_by"] >= LEAST_NARROWING:
        yield (
            f"next, measure on {format_count(int(following['ranks']), 'rank')}: it is expected to narrow the interval "
            f"of {quantity} by {following['narrows_interval_by']:.0%}"
        )
        return
    if pick is None:
        yield (
            f"next, measure on {format_count(int(following['ranks']), 'rank')}: no count is recommended, and that "
            "shows whether another one meets the goal"
        )
        return
    larger = series.counts[series.counts > pick]
    if len(larger):
        yield _describe_between(pick, int(larger[0]), series.per_node)
        return
    advised = recommendation.candidates[recommendation.candidates["narrows_interval_by"].notna()]["ranks"]
    above = advised[advised > pick]
    if len(above):
        yield (
            f"next, measure on {format_count(int(above.min()), 'rank')}: the recommended count is measured, and that "
            "shows whether more ranks pay"
        )


def _describe_between(pick: int, larger: int, per_node: float | None) -> str:
    """What to measure between the recommended count and the next larger one; whole nodes where there are some."""
    nodes = int(per_node or 1)
    middle = (pick + larger) // 2
    middle = middle // nodes * nodes if middle // nodes * nodes > pick else middle
    why = f"the recommended count and {larger} ranks, which is worse, are measured"
    if middle == pick:
        return f"no further measurement is advised: {why}"
    return f"next, measure on {format_count(middle, 'rank')}: {why}, and the best one may lie between"


def _name_time(series: Series) -> str:
    names = {"time_per_epoch_s": "one epoch", "runtime_s": "one run", "throughput": "the time of the table"}
    return names.get(series.quantity, "one step")


def _tabulate_measured(series: Series) -> pd.DataFrame:
    times = series.points["time"]
    columns = {"series": series.name, "ranks": series.counts.astype(int), "fitted": False, "low": np.nan}
    return pd.DataFrame({**columns, "median": times, "high": np.nan})[COLUMNS]


def _tabulate_predicted(series: Series, model: ScalingModel | RunsOfSeries, counts: list[int]) -> pd.DataFrame:
    low, median, high = model.predict_interval(np.array(counts, dtype=float))
    fitted = np.isin(counts, series.counts)
    columns = {"series": series.name, "ranks": counts, "fitted": fitted, "low": low, "median": median, "high": high}
    return pd.DataFrame(columns)


def _list_doublings(model: ScalingModel | RunsOfSeries) -> list[int]:
    return [int(model.largest) * 2**power for power in range(1, int(np.log2(FARTHEST_SHOWN)) + 1)]


def compute_efficiencies(series: Series) -> np.ndarray:
    """Scaling efficiency of each measured count against the smallest."""
    times = series.points["time"].to_numpy(float)
    work = times * series.counts if series.is_fixed else times
    return work[0] / work


def _describe_too_few(series: Series, goal: Goal, best: int | None) -> Iterator[str]:
    """With one or two counts: which of them suits the goal (``best``), and that nothing beyond is predicted."""
    counts = [int(count) for count in series.counts]
    counts_text = " and ".join(map(str, counts))
    more = [counts[-1] * 2**power for power in range(1, LEAST_COUNTS - len(counts) + 1)]
    if len(counts) > 1:
        yield (
            f"of the measured counts {counts_text}, {format_count(best, 'rank')} suits the goal {goal.name}"
            if best
            else f"none of the measured counts {counts_text} is known to meet the goal {goal.name}"
        )
        yield from _describe_shape(series)
    yield (
        f"measured on {counts_text}: nothing beyond is predicted, for which {LEAST_COUNTS} rank counts are needed; "
        f"measure on {' and '.join(map(str, more))} too"
    )


def _describe_shape(series: Series) -> Iterator[str]:
    """How the measured counts scale, in words."""
    efficiency, counts = compute_efficiencies(series), series.counts
    first, last = int(counts[0]), int(counts[-1])
    if len(counts) < 2:
        return
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
    job = series.points["time"].to_numpy(float) * (1.0 if series.is_fixed else counts[0] / counts)
    slower = np.flatnonzero(job[1:] > SLOWER * job[:-1])
    if len(slower):
        place = int(slower[0])
        yield (
            f"the same work takes longer on {counts[place + 1]:.0f} ranks than on {counts[place]:.0f}: if repeats "
            "confirm it, a limit lies between them"
        )
    half = np.flatnonzero(counts <= counts[-1] / 2)
    if not len(slower) and len(job) > 2 and len(half) and job[-1] > job[half[-1]] / 1.1:
        gain = 1 - job[-1] / job[half[-1]]
        yield f"saturated: from {counts[half[-1]]:.0f} to {counts[-1]:.0f} ranks the same work gains {gain:.0%}"


def _describe_doubts(series: Series, model: ScalingModel | RunsOfSeries, counts: Sequence[int]) -> Iterator[str]:
    misfit, count = model.find_misfit()
    if misfit:
        yield (
            f"the time on {format_count(count, 'rank')} is {misfit:.0%} from what the other counts predict "
            "there: the points are noisy, or a limit begins at it"
        )
    if counts[0] < series.counts[0]:
        yield f"counts below {series.counts[0]:.0f}, the smallest measured one, are shown, and not recommended"
    if counts[-1] > FARTHEST_SHOWN * model.largest:
        yield (
            f"counts above {FARTHEST_SHOWN * model.largest:.0f} are more than {FARTHEST_SHOWN} times the largest "
            "measured one: they are shown, and not recommended, and their intervals hold less often"
        )


def _find_knee(
    series: Series, model: ScalingModel | RunsOfSeries, least: float, amount: float
) -> tuple[int, float] | None:
    """The largest count up to which every doubling is efficient with a probability of `LIKELY`, and the probability.

    The efficiency of a doubling is the speedup of the job, with its loading, less 1: the share of a rank's work that
    each added rank does.
    """
    smallest = int(series.counts[0])
    counts = [smallest]
    while counts[-1] * 2 <= min(FARTHEST_SHOWN * model.largest, _compute_most_ranks(series, amount)):
        counts.append(counts[-1] * 2)
    job = _Job(series, np.array(counts, dtype=float), amount)
    runtime = job.draw_runtime(model)
    gain = runtime[:-1] / runtime[1:] - 1
    holds = (np.cumprod(gain >= least, axis=0)).mean(axis=1)
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

    def __init__(self, series: Series, counts: np.ndarray, amount: float) -> None:
        self.series, self.counts = series, counts
        first = series.counts[0]
        self.share = np.full(len(counts), amount) if series.is_fixed else amount * first / counts
        self.load = series.loads(counts)

    def _settings(self, counts: np.ndarray) -> pd.DataFrame:
        nodes = np.ceil(counts / (self.series.per_node or 1))
        return pd.DataFrame({"ranks": counts, "nodes": nodes, "sharding": "none", **NO_KEY})

    def measured(self) -> pd.DataFrame:
        """The measured counts, with the columns of `settings.summarize_points` that `recommend` reads."""
        place = np.searchsorted(self.counts, self.series.counts)
        points = self.series.points
        noise = load_calibration()["noise"] ** 2
        is_repeated = (points["repeats"] > 1) | (points["scatter"] > 0)
        variances = np.where(is_repeated, self.series.variances[0], noise)
        repeats = np.maximum(points["repeats"].to_numpy(), 2)  # of one point the noise is known too
        return self._settings(self.series.counts).assign(
            runtime_s=points["time"].to_numpy(float) * self.share[place] + self.load[place],
            energy_per_rank_j=points["energy_j"].to_numpy(float) * self.share[place] / self.series.counts,
            runtime_s_repeats=repeats,
            energy_per_rank_j_repeats=repeats,
            runtime_s_spread=(repeats - 1) * variances,
            energy_per_rank_j_spread=(repeats - 1) * noise,
            **dict.fromkeys(NOT_EXTRAPOLATED, np.nan),
        )

    def to_words(self, ranks: int, runtime: tuple[float, float, float]) -> str:
        """``throughput 1234 images/s (1200 to 1260)`` of low, median and high runtimes of the job."""
        place = int(np.searchsorted(self.counts, ranks))
        times = np.array(runtime)[::-1] / self.share[place]
        low, median, high = (
            format_significant(float(value), digits=4) for value in self.series.to_unit(times, float(ranks))
        )
        return f"throughput {median} {self.series.unit} ({low} to {high})"

    def draw_runtime(self, model: ScalingModel | RunsOfSeries, of_mean: bool = False) -> np.ndarray:
        """Draws of the whole job's runtime at all counts, with its loading, (counts, draws)."""
        return model.draw(self.counts, of_mean=of_mean) * self.share[:, None] + self.load[:, None]

    def predict(self, model: ScalingModel | RunsOfSeries) -> Prediction:
        """Draws of the whole job at all counts; its energy from the mean power of a rank, held beyond the measured."""
        draws = {"runtime_s": self.draw_runtime(model)}
        means = {"runtime_s": self.draw_runtime(model, of_mean=True)}
        points = self.series.points[self.series.points["energy_j"].notna()]
        if len(points) >= 2:
            power = (points["energy_j"] / points["time"] / points["ranks"]).to_numpy(float)
            watts = np.interp(np.log(self.counts), np.log(points["ranks"].to_numpy(float)), power)[:, None]
            for quantities in (draws, means):
                runtime = quantities["runtime_s"]
                per_rank = watts * (runtime - self.load[:, None])  # as the measured energy, which is without loading
                quantities |= {
                    "energy_per_rank_j": per_rank,
                    "energy_job_j": self.counts[:, None] * per_rank,
                    "power_per_rank_w": watts + 0 * runtime,
                }
        return Prediction(self._settings(self.counts), draws, means, self.measured(), model.largest)
