"""What a series of points answers: predictions, the knee, a recommendation, and what to measure next, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.wording import format_count, format_sampled_share, format_significant
from study.prediction.goals import Goal
from study.prediction.model import Model, Prediction
from study.prediction.points import Series
from study.prediction.recommend import LEAST_NARROWING, Recommendation, best_measured, next_measurement, recommend
from study.prediction.series_model import LEAST_COUNTS, SeriesModel, declared
from study.prediction.settings import NOT_EXTRAPOLATED

DRAWS = 4000
SEED = 2026
FARTHEST_SHOWN = 8  # times the largest measured count, by default
PERFECT = 0.98  # efficiency that counts as perfect scaling
SUPERLINEAR = 1.05
SLOWER = 1.02  # a time that counts as longer than another
MISFIT = 0.05
MISTAKEN, FLAT_SLOPE = 0.3, 0.05  # of log time against log ranks: falls, or does not fall, as of the other kind of work
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

    @property
    def pick(self) -> int | None:
        """The count that is recommended or, of too few for a prediction, the measured one that suits the goal."""
        return self.recommendation.pick if self.recommendation else self.of_measured


def answer(
    series: Series, asked: Sequence[int], goal: Goal, least_efficiency: float = 0.5, amount: float = 1.0
) -> SeriesAnswer:
    """The answer for a series.

    Args:
        series: of `study.prediction.points`.
        asked: counts to predict; by default doublings up to `FARTHEST_SHOWN` times the largest measured one.
        goal: by which a count is recommended.
        least_efficiency: of a doubling before the knee: its speedup less 1.
        amount: steps, epochs or runs of the whole job on the smallest measured count.

    Raises: `StudyError` for more than `MOST_COUNTS` counts.
    """
    model = series.model()
    if model is None:
        shared = _shared(series, amount)
        best = best_measured(_Job(shared, shared.counts, amount).measured(), goal) if len(series.points) > 1 else None
        words = [*_other_work(series), *_mostly_loading(series, amount), *_too_few(series, goal, best)]
        words += [*_price(goal), *_unknown_nodes(series, goal), *series.notes]
        return SeriesAnswer(series, _measured(series), words, None, None, best)
    counts = sorted({*(int(count) for count in series.counts), *(asked or _doublings(model))})
    if len(counts) > MOST_COUNTS:
        raise StudyError(
            f"series {series.name}: {len(counts)} rank counts, measured and to predict; at most {MOST_COUNTS} are "
            "expected"
        )
    smallest = int(series.counts[0])  # the base of efficiency, below which nothing is recommended
    most = _most_ranks(series, amount)
    job = _Job(
        _shared(series, amount), np.array([count for count in counts if smallest <= count <= most], dtype=float), amount
    )
    found = recommend(Model({}, None, job.measured(), 0.0), job.prediction(model), goal)
    knee = _knee(series, model, least_efficiency, amount)
    farthest = FARTHEST_SHOWN * model.largest
    knee_words = _knee_words(knee, least_efficiency, farthest if farthest <= most else np.inf)
    first = [*_other_work(series), *_mostly_loading(series, amount)]
    sentences = [*first, _goal_words(series, goal, found, amount), knee_words, *_shape(series)]
    if counts[-1] > most:
        sentences.append(
            f"counts above {int(most)} are not recommended: of --amount {amount:.10g} on "
            f"{format_count(smallest, 'rank')}, each of their ranks would have less than one epoch"
        )
    sentences += [*_doubts(series, model, counts), *_next(series, found, goal)]
    if series.per_node is None:
        averaged = ", ".join(map(str, declared()["ranks_per_node"]))
        sentences.append(
            f"the ranks of a node are not known, so predictions average over {averaged}; give --ranks-per-node"
        )
    sentences += [*_usual_noise(series), *_price(goal), *_unknown_nodes(series, goal)]
    return SeriesAnswer(series, _predicted(series, model, counts), [*sentences, *series.notes], found, knee)


def _most_ranks(series: Series, amount: float) -> float:
    """On how many ranks each still has one of the job's epochs, which are divided whole; infinite for other work.

    amount: of epochs on the smallest count. 1 is the default, of whoever asks for the time of an epoch only.
    """
    is_divided = series.work == "epochs" and series.quantity == "time_per_epoch_s" and amount > 1
    return amount * float(series.counts[0]) if is_divided else np.inf


def _shared(series: Series, amount: float) -> Series:
    """The series without the counts that are too many for the job, see `_most_ranks`."""
    return replace(series, points=series.points[series.points["ranks"] <= _most_ranks(series, amount)])


def _goal_words(series: Series, goal: Goal, found: Recommendation, amount: float) -> str:
    """The recommendation, and what the job is whose runtime and cost it has, unless that is one measured run."""
    told, smallest = f"goal {goal.name}: {found.reason}", int(series.counts[0])
    if series.is_fixed:
        if series.quantity == "runtime_s" and amount == 1:
            return told
        return f"{told}. The runtime_s is that of a job of {amount:.10g} x {_time_of(series)} (--amount)"
    first = format_count(smallest, "rank")
    told += (
        f". The runtime_s is that of a job of {amount:.10g} x the work of {first} in {_time_of(series)} (--amount), "
        "which more ranks share"
    )
    if found.pick is not None and found.pick in series.counts:
        time = float(series.points["time"][series.counts == found.pick].iloc[0])
        told += (
            f" (in their {format_significant(time, digits=4)} s, {format_count(found.pick, 'rank')} do "
            f"{found.pick / smallest:.4g} x the work of {first})"
        )
    return told


def _usual_noise(series: Series) -> Iterator[str]:
    """Where the interval of a measured count comes from, if no count has repeats that differ, or a deviation."""
    if (series.points["scatter"] == 0).all():
        is_once = (series.points["repeats"] == 1).all()
        why = "each count has one value, so its scatter is not known" if is_once else "repeats do not differ"
        yield (
            f"{why}: that of a usual measurement is taken, "
            f"{declared()['noise']:.1%} (repeats, or a column time_std, tell that of yours)"
        )


def _price(goal: Goal) -> Iterator[str]:
    """What the price is of, where there is one."""
    if goal.price:
        yield f"costs are at {goal.price:g} per node-hour, in the currency of that price"


def _unknown_nodes(series: Series, goal: Goal) -> Iterator[str]:
    """What a node is taken to be, where the goal depends on it and nobody says."""
    depends = {"cost", "node_hours"} & {goal.minimise, *(limit.quantity for limit in goal.limits)}
    if series.per_node is None and (depends or goal.price):
        yield (
            "each rank is counted as a node, so costs and node-hours are too high if nodes have more ranks "
            "(--ranks-per-node)"
        )


def _mostly_loading(series: Series, amount: float) -> Iterator[str]:
    """A sentence where loading takes longer than the rest of the job on its smallest count, as of a job of one step."""
    load, rest = series.loads(series.counts)[0], series.points["time"].iloc[0] * amount
    if load > rest:
        yield (
            f"is --amount {amount:.10g} meant? On {format_count(int(series.counts[0]), 'rank')} this job loads for "
            f"{format_significant(load, digits=4)} s and then takes {format_significant(rest, digits=4)} s "
            f"({amount:.10g} x {_time_of(series)}); --amount is the number of steps or epochs of the whole job"
        )


def _other_work(series: Series) -> Iterator[str]:
    """A sentence where the times scale as those of another kind of work."""
    if len(series.points) < 2:
        return
    slope = float(np.polyfit(np.log(series.counts), np.log(series.points["time"].to_numpy(float)), 1)[0])
    if series.owner:
        yield from _other_owner(series.owner, slope if series.is_fixed else slope - 1)
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


def _other_owner(owner: str, slope: float) -> Iterator[str]:
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


def _next(series: Series, found: Recommendation, goal: Goal) -> Iterator[str]:
    """The measurement to make next: what narrows the answer, else what could show that another count is better."""
    following, pick = next_measurement(found.candidates), found.pick
    if following is None:
        return
    if following["narrows_interval_by"] >= LEAST_NARROWING:
        yield (
            f"next, measure on {format_count(int(following['ranks']), 'rank')}: it is expected to narrow the interval "
            f"of {goal.minimise} by {following['narrows_interval_by']:.0%}"
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
        yield _between(pick, int(larger[0]), series.per_node)
        return
    advised = found.candidates[found.candidates["narrows_interval_by"].notna()]["ranks"]
    above = advised[advised > pick]
    if len(above):
        yield (
            f"next, measure on {format_count(int(above.min()), 'rank')}: the recommended count is measured, and that "
            "shows whether more ranks pay"
        )


def _between(pick: int, larger: int, per_node: float | None) -> str:
    """What to measure between the recommended count and the next larger one; whole nodes where there are some."""
    nodes = int(per_node or 1)
    middle = (pick + larger) // 2
    middle = middle // nodes * nodes if middle // nodes * nodes > pick else middle
    why = f"the recommended count and {larger} ranks, which is worse, are measured"
    if middle == pick:
        return f"no further measurement is advised: {why}"
    return f"next, measure on {format_count(middle, 'rank')}: {why}, and the best one may lie between"


def _time_of(series: Series) -> str:
    names = {"time_per_epoch_s": "one epoch", "runtime_s": "one run", "throughput": "the time of the table"}
    return names.get(series.quantity, "one step")


def _measured(series: Series) -> pd.DataFrame:
    times = series.points["time"]
    columns = {"series": series.name, "ranks": series.counts.astype(int), "fitted": False, "low": np.nan}
    return pd.DataFrame({**columns, "median": times, "high": np.nan})[COLUMNS]


def _predicted(series: Series, model: SeriesModel, counts: list[int]) -> pd.DataFrame:
    low, median, high = model.interval(np.array(counts, dtype=float))
    fitted = np.isin(counts, series.counts)
    columns = {"series": series.name, "ranks": counts, "fitted": fitted, "low": low, "median": median, "high": high}
    return pd.DataFrame(columns)


def _doublings(model: SeriesModel) -> list[int]:
    return [int(model.largest) * 2**power for power in range(1, int(np.log2(FARTHEST_SHOWN)) + 1)]


def efficiencies(series: Series) -> np.ndarray:
    """Scaling efficiency of each measured count against the smallest."""
    times = series.points["time"].to_numpy(float)
    work = times * series.counts if series.is_fixed else times
    return work[0] / work


def _too_few(series: Series, goal: Goal, best: int | None) -> Iterator[str]:
    """With one or two counts: which of them suits the goal (``best``), and that nothing beyond is predicted."""
    counts = [int(count) for count in series.counts]
    told = " and ".join(map(str, counts))
    more = [counts[-1] * 2**power for power in range(1, LEAST_COUNTS - len(counts) + 1)]
    if len(counts) > 1:
        yield (
            f"of the measured counts {told}, {format_count(best, 'rank')} suits the goal {goal.name}"
            if best
            else f"none of the measured counts {told} is known to meet the goal {goal.name}"
        )
        yield from _shape(series)
    yield (
        f"measured on {told}: nothing beyond is predicted, for which {LEAST_COUNTS} rank counts are needed; "
        f"measure on {' and '.join(map(str, more))} too"
    )


def _shape(series: Series) -> Iterator[str]:
    """How the measured counts scale, in words."""
    efficiency, counts = efficiencies(series), series.counts
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


def _doubts(series: Series, model: SeriesModel, counts: Sequence[int]) -> Iterator[str]:
    misfit, count = model.misfit()
    if misfit > MISFIT:
        yield (
            f"the time on {format_count(int(count), 'rank')} is {misfit:.0%} from what the other counts predict "
            "there: the points are noisy, or a limit begins at it"
        )
    if counts[0] < series.counts[0]:
        yield f"counts below {series.counts[0]:.0f}, the smallest measured one, are shown, and not recommended"
    if counts[-1] > FARTHEST_SHOWN * model.largest:
        yield (
            f"counts above {FARTHEST_SHOWN * model.largest:.0f} are more than {FARTHEST_SHOWN} times the largest "
            "measured one: they are shown, and not recommended, and their intervals hold less often"
        )
    if model.per_node and model.largest <= model.per_node < counts[-1]:
        yield "all points are within one node, so predictions of several nodes rest on other people's jobs; measure two"


def _knee(series: Series, model: SeriesModel, least: float, amount: float) -> tuple[int, float] | None:
    """The largest count up to which every doubling likely is efficient, and the probability of that.

    The efficiency of a doubling is the speedup of the job, with its loading, less 1: the share of a rank's work that
    each added rank does.
    """
    smallest = int(series.counts[0])
    counts = [smallest]
    while counts[-1] * 2 <= min(FARTHEST_SHOWN * model.largest, _most_ranks(series, amount)):
        counts.append(counts[-1] * 2)
    job = _Job(series, np.array(counts, dtype=float), amount)
    runtime = job.runtime(model, np.random.default_rng(SEED))
    gain = runtime[:-1] / runtime[1:] - 1
    holds = (np.cumprod(gain >= least, axis=0)).mean(axis=1)
    likely = np.flatnonzero(holds >= 0.5)
    return (counts[int(likely[-1]) + 1], float(holds[likely[-1]])) if len(likely) else None


def _knee_words(knee: tuple[int, float] | None, least: float, farthest: float) -> str:
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
        """The measured counts, with the columns of `study.prediction.settings.observations` that `recommend` reads."""
        place = np.searchsorted(self.counts, self.series.counts)
        points = self.series.points
        noise = declared()["noise"] ** 2
        repeats = np.maximum(points["repeats"].to_numpy(), 2)  # of one point the noise is known too
        return self._settings(self.series.counts).assign(
            runtime_s=points["time"].to_numpy(float) * self.share[place] + self.load[place],
            energy_per_rank_j=points["energy_j"].to_numpy(float) * self.share[place] / self.series.counts,
            runtime_s_repeats=repeats,
            energy_per_rank_j_repeats=repeats,
            runtime_s_spread=(repeats - 1) * (noise + self.series.variances),
            energy_per_rank_j_spread=(repeats - 1) * noise,
            **dict.fromkeys(NOT_EXTRAPOLATED, np.nan),
        )

    def runtime(self, model: SeriesModel, rng: np.random.Generator) -> np.ndarray:
        """Draws of the whole job's mean runtime at all counts, with its loading, (counts, draws)."""
        return model.draws(self.counts, DRAWS, rng) * self.share[:, None] + self.load[:, None]

    def prediction(self, model: SeriesModel) -> Prediction:
        """Draws of the whole job at all counts; its energy from the mean power of a rank, held beyond the measured."""
        rng = np.random.default_rng(SEED)
        runtime = self.runtime(model, rng)
        means = {"runtime_s": runtime}
        points = self.series.points[self.series.points["energy_j"].notna()]
        if len(points) >= 2:
            power = (points["energy_j"] / points["time"] / points["ranks"]).to_numpy(float)
            watts = np.interp(np.log(self.counts), np.log(points["ranks"].to_numpy(float)), power)[:, None]
            per_rank = watts * (runtime - self.load[:, None])  # as the measured energy, which is without loading
            job = self.counts[:, None] * per_rank
            means |= {"energy_per_rank_j": per_rank, "energy_job_j": job, "power_per_rank_w": watts + 0 * runtime}
        of_a_run = np.sqrt(declared()["noise"] ** 2 + np.log1p(model.single))
        noise = np.exp(of_a_run * rng.standard_normal(runtime.shape))
        draws = {name: values * noise for name, values in means.items()}
        return Prediction(self._settings(self.counts), draws, means)
