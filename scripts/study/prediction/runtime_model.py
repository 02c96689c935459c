"""Runtime and energy of a study's runs at other rank counts, from series that are predicted one by one.

A run takes epochs x steady time per epoch + overhead of the first epoch + loading + everything else. Each is a series
for `study.prediction.scaling_model`, with its own scatter. Energy is power while computing x compute time + power
otherwise x the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from study.core.distributions import find_minimum, fit_nonnegative
from study.core.statistics import MUCH_LARGER, pool_variance
from study.prediction import settings
from study.prediction.scaling_model import DRAWS, LEAST_COUNTS, SEED, ScalingModel, fit_scaling, load_calibration
from study.prediction.settings import SERIES
from study.workloads import command

Interval = tuple[np.ndarray, np.ndarray, np.ndarray]  # low, median, high
OF_EPOCHS = [name for name in SERIES if name not in ("scaling", "epochs")]  # what a time per epoch depends on
PARTS = ("load_s", "other_s")
STREAMS = {"epoch_s": 0, "load_s": 1, "other_s": 2, "first_epoch_s": 3, "energy": 4}  # of random numbers
LEAST_PART = 1e-6  # of the runtime, as loading that takes no time


@dataclass(frozen=True)
class FirstEpochs:
    """Overhead of a run's first epoch: that of the smallest count, and more for each further rank.

    Args:
        ranks: the smallest and the largest count it is known from.
        at_smallest: seconds on the smallest count.
        per_rank: seconds for each rank more.
        error: relative standard error of ``per_rank``.
    """

    ranks: tuple[float, float] = (1.0, 1.0)
    at_smallest: float = 0.0
    per_rank: float = 0.0
    error: float = 0.0

    def predict(self, counts: np.ndarray) -> np.ndarray:
        """Seconds at each count, shape (counts,)."""
        return self.at_smallest + self.per_rank * np.maximum(counts - self.ranks[0], 0)

    def draw(self, counts: np.ndarray, of_mean: bool) -> np.ndarray:
        """Draws at each count, shape (counts, `DRAWS`): errors grow with the doublings, as those of other series."""
        model = fit_scaling(np.array(self.ranks) * [1, 1 + (self.ranks[0] == self.ranks[1])], np.ones(2), False)
        errors = np.log(model.draw(counts, STREAMS["first_epoch_s"], of_mean))
        errors -= np.median(errors, axis=1, keepdims=True)
        return self.predict(counts)[:, None] * np.exp(errors * (1 + self.error / model.compute_scales(counts)[:, None]))


@dataclass(frozen=True)
class Power:
    """Power of a rank in W while computing and otherwise. scatter: relative deviation of the measured energies."""

    computing: float
    waiting: float
    scatter: float

    def to_joules(self, computing_s: Any, runtime_s: Any) -> Any:
        """Energy of a rank of a run."""
        return self.computing * computing_s + self.waiting * (runtime_s - computing_s)


@dataclass(frozen=True)
class RuntimeModel:
    """The fitted series of one workload.

    Args:
        measured: the observations (`study.prediction.settings.summarize_points`).
        epochs: {what a time per epoch depends on: its series}; one that has a single count is missing.
        first_epochs: overhead of the first epoch.
        parts: the series of loading and of everything else.
        power: None without energies.
        is_mixed: whether times per epoch have an unknown share of the first epoch's overhead, which changes with ranks.
    """

    measured: pd.DataFrame
    epochs: dict[Hashable, ScalingModel]
    first_epochs: FirstEpochs
    parts: dict[str, ScalingModel]
    power: Power | None
    is_mixed: bool = False

    def has_series(self, rows: pd.DataFrame) -> bool:
        """Whether the time per epoch of these rows, of one series, was measured on two counts at least."""
        return len(rows) > 0 and get_epoch_key(rows.iloc[0]) in self.epochs

    def compute_seconds(self, rows: pd.DataFrame) -> np.ndarray:
        """Seconds in which a rank computes in each run, (rows,): its epochs at the speed of the smallest count."""
        seconds = []
        for _, row in rows.iterrows():
            model = self.epochs[get_epoch_key(row)]
            share = model.ranks[0] / row["ranks"] if model.is_fixed else 1.0
            seconds.append(row["epochs_per_rank"] * model.times[0] * share)
        return np.array(seconds)

    def draw(self, rows: pd.DataFrame, of_mean: bool) -> dict[str, np.ndarray]:
        """Draws of each quantity of a `Prediction` of a run, or of the mean of many, at rows of one series."""
        counts = rows["ranks"].to_numpy(float)
        epochs = rows["epochs_per_rank"].to_numpy(float)[:, None]
        steady = self.epochs[get_epoch_key(rows.iloc[0])].draw(counts, STREAMS["epoch_s"], of_mean)
        mean_epoch = steady + self.first_epochs.draw(counts, of_mean) / epochs
        parts = {name: part.draw(counts, STREAMS[name], of_mean) for name, part in self.parts.items()}
        runtime = epochs * mean_epoch + sum(parts.values())  # without the parts that no run has measured
        draws = {"mean_epoch_s": mean_epoch, **parts, "runtime_s": runtime}
        if self.power is None:
            return draws
        computing = np.minimum(self.compute_seconds(rows)[:, None], runtime)
        scatter = np.hypot(self.power.scatter, 0 if of_mean else load_calibration()["noise"])
        streams = [np.random.default_rng([SEED, STREAMS["energy"], int(count)]) for count in counts]
        errors = np.array([rng.standard_normal(DRAWS) for rng in streams])
        per_rank = self.power.to_joules(computing, runtime) * np.exp(scatter * errors)
        job = counts[:, None] * per_rank
        return draws | {"energy_per_rank_j": per_rank, "energy_job_j": job, "power_per_rank_w": per_rank / runtime}


@dataclass(frozen=True)
class Prediction:
    """Draws of each quantity at the settings of one series, each of shape (settings, draws).

    Args:
        settings: a row per rank count, ascending.
        draws: of a single run. Quantities: mean_epoch_s, load_s, other_s, runtime_s and, with energies,
            energy_per_rank_j, energy_job_j, power_per_rank_w.
        means: of the mean of many runs.
        measured: the observations of the workload.
        largest: the largest rank count that the series is predicted from.
    """

    settings: pd.DataFrame
    draws: dict[str, np.ndarray] = field(repr=False)
    means: dict[str, np.ndarray] = field(repr=False)
    measured: pd.DataFrame = field(repr=False)
    largest: float

    @property
    def series(self) -> tuple[Any, ...]:
        """Its values of `SERIES`."""
        return tuple(self.settings[SERIES].iloc[0])

    @functools.cached_property
    def observations(self) -> pd.DataFrame:
        """The observations of this series by rank count, with their index in ``measured`` as ``row``."""
        rows = self.measured[(self.measured[SERIES] == self.settings[SERIES].iloc[0]).all(axis=1)]
        return rows.assign(row=rows.index).set_index("ranks")

    def interval(self, quantity: str) -> Interval:
        """Low, median and high of a quantity, each of shape (settings,)."""
        return compute_interval(self.draws[quantity])


def compute_interval(draws: np.ndarray) -> Interval:
    """Median and ends of the 90 % interval of draws along the last axis."""
    low, median, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=-1)
    return low, median, high


def compare_with_measured(predicted: Interval, measured: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of a table: the prediction, its relative error, and whether the interval holds."""
    low, median, high = predicted
    return {
        "predicted_low": low,
        "predicted_median": median,
        "predicted_high": high,
        "error": median / measured - 1,
        "within_interval": (low <= measured) & (measured <= high),
    }


def get_epoch_key(row: pd.Series) -> Hashable:
    """What the time per epoch of a row's series depends on."""
    shares = row.get("sharding", "none") != "none" or row.get("work", command.EPOCHS) != command.EPOCHS
    values = (*(row.get(name) for name in OF_EPOCHS), row.get("scaling") if shares else None)
    return tuple(None if pd.isna(value) else value for value in values)


def fit_runtime_model(observations: pd.DataFrame) -> RuntimeModel:
    """Fit the series of one workload to its observations."""
    keys = pd.Series([get_epoch_key(row) for _, row in observations.iterrows()], observations.index)
    first_epochs, is_mixed = _separate_first_epochs(observations, keys)
    mean = observations["mean_epoch_s"]
    overhead = first_epochs.predict(observations["ranks"].to_numpy(float)) / observations["epochs_per_rank"]
    steady = _get_steady(observations).fillna((mean - overhead).clip(lower=0.5 * mean))
    epochs = {}
    for key, rows in observations.assign(_steady=steady).groupby(keys, sort=True):
        by_ranks = rows.sort_values("ranks").get("samples", pd.Series(0.0))
        is_shared = bool(by_ranks.iloc[-1] < by_ranks.iloc[0])  # the samples of an epoch
        if (series := _fit_means(rows, "_steady", "mean_epoch_s", is_shared)) is not None:
            epochs[key] = series
    parts = {}
    for name in (name for name in PARTS if name in observations):
        rows = observations.assign(_part=observations[name].clip(lower=LEAST_PART * observations.get("runtime_s", 1.0)))
        rows = rows[rows["_part"].notna()]
        if rows["ranks"].nunique() == 1:  # the same on twice the ranks
            rows = pd.concat([rows, rows.assign(ranks=2 * rows["ranks"])])
        if (series := _fit_means(rows, "_part", name, False)) is not None:
            parts[name] = series
    model = RuntimeModel(observations, epochs, first_epochs, parts, None, is_mixed)
    return replace(model, power=_fit_power(model, observations[keys.isin(list(epochs))]))


def predict(model: RuntimeModel, rows: pd.DataFrame) -> Prediction:
    """Predict a run, and the mean of many, at each setting of one series that has a model."""
    draws, means = (model.draw(rows, of_mean) for of_mean in (False, True))
    return Prediction(rows, draws, means, model.measured, model.epochs[get_epoch_key(rows.iloc[0])].largest)


def predict_held_out(observations: pd.DataFrame) -> Iterator[Prediction]:
    """Predictions of each measured point of a workload from its other rank counts, one per series and count."""
    counts = observations["ranks"].unique()
    for count in sorted(counts) if len(counts) > LEAST_COUNTS else ():
        is_out = observations["ranks"] == count
        model = fit_runtime_model(observations[~is_out])
        for _, rows in observations[is_out].groupby(SERIES, sort=True):
            if model.has_series(rows):
                yield predict(model, rows)


def _fit_means(rows: pd.DataFrame, column: str, of_repeats: str, is_fixed: bool) -> ScalingModel | None:
    """Model of a column's mean at each count; None with fewer than two counts."""
    rows = rows[rows[column].notna()]
    by_count = rows.groupby("ranks", sort=True)
    means = by_count[column].mean()
    if len(means) < LEAST_COUNTS:
        return None
    variances, repeats, scatter = None, np.ones(len(means)), 0.0
    if f"{of_repeats}_spread" in rows:
        repeats = by_count[f"{of_repeats}_repeats"].sum().to_numpy(float)
        freedom = repeats - by_count.size().to_numpy(float)
        own = by_count[f"{of_repeats}_spread"].sum().to_numpy(float) / np.maximum(freedom, 1)
        variances, _, scatter = estimate_variances(own, freedom)
    return fit_scaling(means.index.to_numpy(float), means.to_numpy(float), is_fixed, variances, repeats, scatter)


def estimate_variances(own: np.ndarray, freedom: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Relative variance of a single run at each count, its degrees of freedom, and the deviation of a further run.

    The variance is pooled over the counts, or the count's own where that is much larger: few repeats may agree by
    chance, and a count without repeats is no surer than those with some. Without any repeats it is that of the
    calibration, with 0 degrees of freedom. A further run may be disturbed as one was.

    Args:
        own: variance of the repeats of each count, shape (counts,).
        freedom: its degrees of freedom; 0 where nothing was repeated.
    """
    noise = load_calibration()["noise"]
    pooled, pooled_freedom = pool_variance(own, freedom, noise**2)
    if not pooled_freedom:
        return np.full(len(own), noise**2), np.zeros(len(own)), 0.0
    is_apart = own > MUCH_LARGER * pooled
    further = float(np.sqrt(np.average(own, weights=freedom)))
    return np.where(is_apart, own, pooled), np.where(is_apart, freedom, pooled_freedom), further


def _get_steady(observations: pd.DataFrame) -> pd.Series:
    return observations["epoch_s"] if "epoch_s" in observations else pd.Series(np.nan, observations.index)


def _separate_first_epochs(observations: pd.DataFrame, keys: pd.Series) -> tuple[FirstEpochs, bool]:
    """Overhead of first epochs, and whether it is an unknown share of times per epoch.

    It is known where runs have a steady time per epoch, or where runs on the same ranks have different numbers of
    epochs. Where the number of epochs per rank only changes with the ranks, nothing tells it from a cost of more ranks.
    """
    timed = observations.assign(_steady=_get_steady(observations))[observations["mean_epoch_s"].notna()]
    if timed["_steady"].notna().any():
        return _fit_first_epochs(timed[timed["_steady"].notna()]), False
    if timed["epochs_per_rank"].nunique() < 2:
        return FirstEpochs(), False
    of_place = timed.groupby([keys[timed.index], timed["ranks"]], sort=False)["epochs_per_rank"]
    if (of_place.nunique() > 1).sum() < LEAST_COUNTS:
        return FirstEpochs(), True
    return _infer_first_epochs(timed, keys[timed.index]), False


def _fit_first_epochs(timed: pd.DataFrame) -> FirstEpochs:
    """Overhead with a slope of at least 0, by errors relative to a run's first epoch: where the steady one is known."""
    ranks, steady = (timed[name].to_numpy(float) for name in ("ranks", "_steady"))
    seconds = timed["epochs_per_rank"].to_numpy(float) * (timed["mean_epoch_s"].to_numpy(float) - steady)
    more = ranks - ranks.min()
    at_smallest = max(float(seconds[more == 0].mean()), 0.0)
    weights, rest = 1 / (steady + np.abs(seconds)) ** 2, (seconds - at_smallest) * (more > 0)
    squares = float(weights @ more**2)
    per_rank = max(float(weights @ (more * rest)) / squares, 0.0) if squares else 0.0
    variance = float(weights @ (rest - per_rank * more) ** 2) / max((more > 0).sum() - 1, 1)
    error = min(float(np.sqrt(variance / squares) / per_rank), 1.0) if per_rank else 0.0
    return FirstEpochs((float(ranks.min()), float(ranks.max())), at_smallest, per_rank, error)


def _infer_first_epochs(timed: pd.DataFrame, keys: pd.Series) -> FirstEpochs:
    """Overhead of first epochs with which the steady times per epoch of all series fit best, by relative errors."""
    counts, epochs, mean = (timed[name].to_numpy(float) for name in ("ranks", "epochs_per_rank", "mean_epoch_s"))
    smallest, largest = float(counts.min()), float(counts.max())
    there = timed.assign(_more=1 / epochs)[counts == smallest]
    apart = there[["_more", "mean_epoch_s"]] - there.groupby(keys)[["_more", "mean_epoch_s"]].transform("mean")
    squares = float((apart["_more"] ** 2).sum())
    at_smallest = max(float(apart["_more"] @ apart["mean_epoch_s"]) / squares, 0.0) if squares else 0.0

    def compute_misfit(per_rank: float) -> float:
        overhead = FirstEpochs((smallest, largest), at_smallest, per_rank).predict(counts) / epochs
        squares = 0.0
        for _, group in timed.assign(_steady=mean - overhead).groupby(keys, sort=False):
            if (model := _fit_means(group, "_steady", "mean_epoch_s", False)) is not None:
                fitted = model.fit_median(group["ranks"].to_numpy(float)) + (group["mean_epoch_s"] - group["_steady"])
                squares += float(((fitted / group["mean_epoch_s"] - 1) ** 2).sum())
        return squares

    most = float((0.5 * mean * epochs / np.maximum(counts - smallest, 1))[counts > smallest].min())
    per_rank = find_minimum(compute_misfit, 0, most)
    step = 0.1 * most
    curvature = (compute_misfit(per_rank + step) - compute_misfit(per_rank)) / step**2
    variance = compute_misfit(per_rank) / max(len(timed) - 1, 1) / max(curvature, 1e-12)
    return FirstEpochs((smallest, largest), at_smallest, per_rank, min(float(np.sqrt(variance)) / per_rank, 1.0))


def _fit_power(model: RuntimeModel, observations: pd.DataFrame) -> Power | None:
    """Power of a rank while computing and otherwise; None with fewer than two energies."""
    joules = observations.get("energy_per_rank_j", pd.Series(dtype=float)).dropna()
    if len(joules) < LEAST_COUNTS:
        return None
    runtime = observations["runtime_s"][joules.index].to_numpy(float)
    computing = np.minimum(model.compute_seconds(observations.loc[joules.index]), runtime)
    relative = np.stack([computing, runtime - computing], axis=1) / joules.to_numpy(float)[:, None]
    busy, waiting = fit_nonnegative(relative, np.ones(len(joules)))
    errors = relative @ np.array([busy, waiting]) - 1
    return Power(float(busy), float(waiting), float(np.sqrt((errors**2).mean())))


@dataclass(frozen=True)
class RunsOfSeries:
    """One series of a study's runs, with the methods of a `ScalingModel` for its runtime.

    Args:
        model: of the workload.
        series: a row of the observations, for what does not depend on the ranks.
        ranks_per_node: of the machine.
    """

    model: RuntimeModel
    series: pd.Series
    ranks_per_node: int

    @property
    def largest(self) -> float:
        """The largest rank count that the series is predicted from."""
        return self.model.epochs[get_epoch_key(self.series)].largest

    def predict_interval(self, counts: np.ndarray) -> Interval:
        """Low, median and high of the runtime at each count; NaN at counts that no study would accept."""
        return compute_interval(self.draw(counts))

    def draw(self, counts: np.ndarray, stream: int = 0, of_mean: bool = False) -> np.ndarray:
        """Draws of the runtime at each count, shape (counts, `DRAWS`)."""
        whole = [int(count) for count in counts]
        rows = settings.derive_settings_at_counts(self.series, whole, self.ranks_per_node, is_checked=False)
        return self.model.draw(rows, of_mean)["runtime_s"]

    def find_misfit(self) -> tuple[float, int]:
        """As `ScalingModel.find_misfit`, of the time per epoch."""
        return self.model.epochs[get_epoch_key(self.series)].find_misfit()
