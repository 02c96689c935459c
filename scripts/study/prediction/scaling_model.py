"""The model of times at other rank counts: the mean of two simple fits, with calibrated intervals.

The median is the geometric mean of a power law and of a + b/N + c log N with coefficients of at least 0. Between the
measured counts it follows the measurements. Beyond them, the slowdown against perfect scaling grows within plausible
limits. The intervals are conformal: errors of this median on public series, relative to a scale that grows with the
distance in doublings, the disagreement of the two fits of a fixed work and the residuals of the points, have the
quantiles in config/prediction/calibration.yaml, which `python performance/scaling_series.py --calibrate` makes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from study.core import validation
from study.core.distributions import compute_normal_quantile, fit_nonnegative
from study.core.paths import CONFIG

FILE = CONFIG / "prediction" / "calibration.yaml"
LEAST_COUNTS = 2
LEAST_TIME = 0.01  # of the last measured time: a fit that falls below it is held there
INTERVAL = (0.05, 0.5, 0.95)
WIDTH = 3.29  # of a 90 % interval, in standard deviations
DRAWS = 4000
SEED = 2026
WAYPOINTS = 9  # beyond the measured counts, at which the two fits are compared
KNOTS = 4  # of a random path, per doubling
LONGEST_PATH = 40  # doublings
MISFIT = 0.1  # relative: a measured time that differs less from the others' prediction is no misfit

Array = np.ndarray


@functools.cache
def load_calibration() -> dict[str, Any]:
    """Content of config/prediction/calibration.yaml; raises `StudyError` if it violates its schema."""
    return validation.load_valid_yaml(FILE, "calibration")


def power_law(ranks: Array, times: Array, counts: Array, is_fixed: bool, weights: Array | None = None) -> Array:
    """Fixed work: a N^b, by least squares of the logarithms. Work of each rank fixed: a + b log N, relative errors.

    Args:
        ranks: fitted counts, shape (points,).
        times: at these, shape (points,), of any unit.
        counts: to predict, shape (counts,).
        is_fixed: whether the ranks share a fixed work.
        weights: of the points, shape (points,); by default 1.

    Returns: times, shape (counts,), in the unit of ``times``. The other fits have the same arguments.
    """
    root = np.sqrt(np.ones(len(ranks)) if weights is None else weights)
    x, at = (np.stack([np.ones(len(values)), np.log(values)], axis=1) for values in (ranks, counts))
    if is_fixed:
        return np.exp(at @ np.linalg.lstsq(x * root[:, None], np.log(times) * root, rcond=None)[0])
    coefficients = np.linalg.lstsq(x * (root / times)[:, None], root, rcond=None)[0]
    return np.maximum(at @ coefficients, LEAST_TIME * times[-1])


def three_terms(ranks: Array, times: Array, counts: Array, is_fixed: bool, weights: Array | None = None) -> Array:
    """Times of a + b/N + c log N with coefficients of at least 0, by relative least squares; see `power_law`."""
    root = np.sqrt(np.ones(len(ranks)) if weights is None else weights)
    x, at = (np.stack([np.ones(len(values)), 1 / values, np.log(values)], axis=1) for values in (ranks, counts))
    return np.maximum(at @ fit_nonnegative(x * (root / times)[:, None], root), LEAST_TIME * times[-1])


@dataclass(frozen=True)
class ScalingModel:
    """A measured series, which predicts its time at other rank counts.

    Args:
        ranks: distinct counts, ascending, shape (points,), at least `LEAST_COUNTS`.
        times: mean at each, shape (points,), of any unit; predictions have the same.
        is_fixed: whether the ranks share a fixed work, so that perfect scaling is 1/N; else it is constant.
        weights: of the points, above 0 and at most 1, shape (points,).
        scatter: relative standard deviation of single runs beyond what every interval has.
        calibration: as in config/prediction/calibration.yaml.
    """

    ranks: Array
    times: Array
    is_fixed: bool
    weights: Array
    scatter: float
    calibration: dict[str, Any]

    @property
    def largest(self) -> float:
        """The largest measured count."""
        return float(self.ranks[-1])

    def predict_median(self, counts: Array) -> Array:
        """Median time at each count, shape (counts,)."""
        return self._to_times(self._predict_slowdowns(np.asarray(counts, dtype=float)), counts)

    def fit_median(self, counts: Array) -> Array:
        """Time at each count by the mean of the two fits alone, also at measured counts, shape (counts,)."""
        return self._to_times(self._fit_slowdowns(counts), counts)

    def predict_interval(self, counts: Array) -> tuple[Array, Array, Array]:
        """Low, median and high of a single run at each count (90 % interval), each of shape (counts,)."""
        counts = np.asarray(counts, dtype=float)
        slowdowns, scales = self._predict_slowdowns(counts), self.compute_scales(counts)
        errors = [self._widen(self._limit_gain(scales * self._score(share), slowdowns), share) for share in INTERVAL]
        low, median, high = (self._to_times(slowdowns + error, counts) for error in errors)
        return low, median, high

    def draw(self, counts: Array, stream: int = 0, of_mean: bool = False) -> Array:
        """Joint draws of a single run, or of the mean of many, at each count, shape (counts, `DRAWS`).

        A count's draws are the same whichever other counts are asked, and have the quantiles of `predict_interval`.
        Beyond the measured counts errors grow together, as a random walk over the doublings.

        Args:
            counts: shape (counts,).
            stream: of random numbers; models of one stream have the same errors.
            of_mean: leave out the noise of a single run.
        """
        counts = np.asarray(counts, dtype=float)
        scales = self.compute_scales(counts) - of_mean * self.calibration["scale"]["constant"]
        shares, slowdowns = self._draw_shares(counts, stream), self._predict_slowdowns(counts)
        errors = self._limit_gain(scales[:, None] * self._score(shares), slowdowns[:, None])
        return self._to_times(slowdowns, counts)[:, None] * np.exp(errors if of_mean else self._widen(errors, shares))

    def compute_scales(self, counts: Array) -> Array:
        """Scale of the relative error at each count, shape (counts,): with it, calibrated scores become errors."""
        features = self.compute_features(counts)
        return np.array(sum(self.calibration["scale"][name] * values for name, values in features.items()))

    def compute_features(self, counts: Array) -> dict[str, Array]:
        """What the scale of the error grows with, by name, each of shape (counts,) and at least 0."""
        distance = np.abs(self._doublings_beyond(counts))
        residuals = self.weights / self.weights.max() * self._measure_residuals()
        return {
            "constant": np.ones(len(counts)),
            "doubling": distance,
            "disagreement": self._measure_disagreement(counts),
            "residual": np.full(len(counts), np.sqrt((residuals**2).mean())),
        }

    def _measure_disagreement(self, counts: Array) -> Array:
        """Largest |log ratio| of the two fits of a fixed work from the measured counts to each count, (counts,)."""
        ends = np.clip(counts, self.ranks[0], self.ranks[-1])
        way = ends * (counts / ends) ** np.linspace(0, 1, WAYPOINTS)[:, None]
        power, terms = self._fit_both(way.ravel(), of_fixed_work=True)
        return np.array(np.abs(np.log(power / terms)).reshape(way.shape).max(axis=0))

    def find_misfit(self) -> tuple[float, int]:
        """The largest relative distance of an inner measured time from what the other counts predict, and its count.

        Only times that are outside the interval of that prediction, and farther than `MISFIT` from its median; else 0.
        """
        distances = [(0.0, 0)]
        for place in range(1, len(self.ranks) - 1):
            ranks, times, weights = (np.delete(each, place) for each in (self.ranks, self.times, self.weights))
            model = replace(self, ranks=ranks, times=times, weights=weights)
            low, median, high = (each[0] / self.times[place] for each in model.predict_interval(self.ranks[[place]]))
            if not low <= 1 <= high and abs(median - 1) > MISFIT:
                distances.append((abs(float(median - 1)), int(self.ranks[place])))
        return max(distances)

    def _fit_both(self, counts: Array, of_fixed_work: bool = False) -> tuple[Array, Array]:
        """The two fits at the counts; of_fixed_work: of the time in which all ranks together do the same work."""
        times = self.times / self.ranks if of_fixed_work and not self.is_fixed else self.times
        arguments = (self.ranks, times / times[-1], counts, self.is_fixed or of_fixed_work, self.weights)
        return power_law(*arguments) * times[-1], three_terms(*arguments) * times[-1]

    def _fit_slowdowns(self, counts: Array) -> Array:
        """Logarithm of the slowdown, but for a constant, by the mean of the two fits."""
        power, terms = self._fit_both(counts)
        return self._to_slowdowns(np.sqrt(power) * np.sqrt(terms), counts)

    def _measure_residuals(self) -> Array:
        """What the measured slowdowns have beyond the fit, shape (points,)."""
        return self._to_slowdowns(self.times, self.ranks) - self._fit_slowdowns(self.ranks)

    def _predict_slowdowns(self, counts: Array) -> Array:
        beyond, doublings = self._doublings_beyond(counts), np.log2(self.ranks)
        residuals = self.weights * self._measure_residuals()  # little of a count that is measured badly
        slowdowns, fitted = self._fit_slowdowns(counts), self._fit_slowdowns(self.ranks)
        follows = fitted + residuals
        slopes = (follows[-1] - follows[-2]) / (doublings[-1] - doublings[-2]), np.polyfit(doublings, follows, 1)[0]
        limits = self.calibration["growth"]
        steepest = max(limits["steepest"] * max(slopes), limits["steepest_at_least"])
        grown = fitted[-1] + np.clip(slowdowns - fitted[-1], limits["least"] * beyond, steepest * beyond)
        residuals = np.interp(np.log(counts), np.log(self.ranks), residuals) * 2.0 ** -np.abs(beyond)
        return np.array(np.where(beyond > 0, grown, slowdowns) + residuals)

    def _doublings_beyond(self, counts: Array) -> Array:
        """Doublings above the largest measured count, or below the smallest one (negative); 0 between them."""
        return np.log2(counts / np.clip(counts, self.ranks[0], self.ranks[-1]))

    def _draw_shares(self, counts: Array, stream: int) -> Array:
        """Uniform draws of each count, shape (counts, `DRAWS`), each a permutation of the same numbers."""
        uniform = (np.arange(DRAWS) + 0.5) / DRAWS
        shares = np.empty((len(counts), DRAWS))
        for place, doublings in enumerate(self._doublings_beyond(counts)):
            if doublings == 0:
                rng = np.random.default_rng([SEED, stream, 2, int(counts[place])])
                shares[place] = rng.permutation(uniform)
            else:
                path = _draw_paths(stream, doublings > 0)
                knot = min(abs(doublings), LONGEST_PATH - 1) * KNOTS
                below = int(knot)
                values = path[below] + (knot - below) * (path[below + 1] - path[below])
                shares[place, np.argsort(values)] = uniform
        return shares

    def _score(self, shares: Any) -> Array:
        """The calibrated score with a share of all scores below it."""
        quantiles = self.calibration["quantiles"]
        return np.interp(shares, quantiles["shares"], quantiles["scores"])

    def _limit_gain(self, errors: Array, slowdowns: Array) -> Array:
        """Errors of which none makes a count much more efficient than the most efficient measured one is.

        slowdowns: the medians' logarithms, of a shape that fits.
        """
        best = self._to_slowdowns(self.times, self.ranks).min() - self.calibration["growth"]["most_gain"]
        least = self._score(INTERVAL[0]) * self.calibration["scale"]["constant"]
        return np.maximum(errors, np.minimum(best - slowdowns, least))

    def _widen(self, errors: Array, shares: Any) -> Array:
        """Errors of the logarithm, widened by the further scatter of single runs."""
        normal = compute_normal_quantile(shares)
        return np.array(np.sign(normal) * np.hypot(errors, self.scatter * normal))

    def _to_slowdowns(self, times: Array, ranks: Array) -> Array:
        return np.log(times) + (np.log(ranks) if self.is_fixed else 0.0)

    def _to_times(self, slowdowns: Array, ranks: Array) -> Array:
        return np.exp(slowdowns - (np.log(ranks) if self.is_fixed else 0.0))


@functools.lru_cache(maxsize=32)
def _draw_paths(stream: int, upward: bool) -> Array:
    """Random walks over the doublings beyond the measured counts, shape (knots, `DRAWS`)."""
    rng = np.random.default_rng([SEED, stream, int(upward)])
    return np.cumsum(rng.standard_normal((LONGEST_PATH * KNOTS + 1, DRAWS)), axis=0)


def fit_scaling(
    ranks: Array,
    times: Array,
    is_fixed: bool,
    variances: Array | None = None,
    repeats: Array | None = None,
    scatter: float = 0.0,
    calibration: dict[str, Any] | None = None,
) -> ScalingModel:
    """Model of points in any order, at most one per count; raises ValueError with fewer than `LEAST_COUNTS`.

    Args:
        ranks: counts, shape (points,).
        times: mean at each, shape (points,).
        is_fixed: as in `ScalingModel`.
        variances: relative variance of a single run at each count, shape (points,); by default the usual noise.
        repeats: runs at each count, shape (points,); by default 1.
        scatter: relative standard deviation of a further run; 0 if it is not known.
        calibration: by default that of config/prediction/calibration.yaml.
    """
    calibration = calibration or load_calibration()
    order = np.argsort(ranks)
    ranks, times = (np.asarray(values, dtype=float)[order] for values in (ranks, times))
    if len(ranks) < LEAST_COUNTS or len(np.unique(ranks)) < len(ranks):
        raise ValueError(f"{LEAST_COUNTS} distinct rank counts are needed")
    usual = calibration["noise"] ** 2
    of_runs = np.full(len(ranks), usual) if variances is None else np.asarray(variances, dtype=float)
    of_means = (of_runs / (1 if repeats is None else np.asarray(repeats)))[order]
    scores = np.interp(INTERVAL, calibration["quantiles"]["shares"], calibration["quantiles"]["scores"])
    included = calibration["scale"]["constant"] * float(np.ptp(scores)) / WIDTH  # of an interval at a measured count
    further = float(np.sqrt(max(scatter**2 - included**2, 0.0)))
    return ScalingModel(ranks, times, is_fixed, usual / np.maximum(of_means, usual), further, calibration)
