"""The model of a scaling series: one time per rank count, without knowledge of the program.

The logarithm of the slowdown against perfect scaling is a sum of named trends in the doublings of ranks (Gaussian, with
priors from public series) and one of some shapes log(1 + size x f). Series differ in how wild they are. All scales and
shapes are averaged by their likelihood, so that the fit is exact linear algebra and no chain has to converge. The
median is then averaged with two simple fits, by their precision, as far as the interval holds it. Priors:
config/prediction/series.yaml.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from study.core import validation
from study.core.paths import CONFIG
from study.prediction.simple_fits import power_law, three_terms

FILE = CONFIG / "prediction" / "series.yaml"
LEAST_COUNTS = 3
FLAT = 25.0  # prior variance of the logarithm of a series' level: any
BISECTIONS = 60
WIDEST = 8  # standard deviations in which quantiles are searched
INTERVAL = np.array([0.05, 0.5, 0.95])
MOST_LEFT_OUT = 12  # points of which each is left out once; of many points, evenly chosen ones
DEVIATIONS = 3.29  # in a 90 % interval

Array = np.ndarray


@functools.cache
def declared() -> dict[str, Any]:
    """The content of config/prediction/series.yaml; raises `StudyError` if it violates its schema."""
    return validation.load_valid_yaml(FILE, "series")


@dataclass(frozen=True)
class Places:
    """Rank counts as doublings, each of shape (counts,): of ranks within a node, of nodes, and of all ranks."""

    within: Array
    between: Array
    all: Array

    @classmethod
    def of(cls, ranks: Array, per_node: float) -> Places:
        """The places of counts on nodes of ``per_node`` ranks."""
        within, between = np.minimum(ranks, per_node), np.maximum(ranks / per_node, 1)
        return cls(np.log2(within), np.log2(between), np.log2(ranks))


Column = Callable[[Places], Array]
Covariance = Callable[[Places], Array]


def _outer(column: Column) -> Covariance:
    return lambda places: np.outer(column(places), column(places))


def _bend(x: Array) -> Array:
    """Covariance of a slope that changes: Brownian motion, integrated once."""
    least, most = np.minimum.outer(x, x), np.maximum.outer(x, x)
    return least**2 * (3 * most - least) / 6


# Trends: name to the covariance of their effect on the logarithm of the slowdown, for a deviation of 1.
COLUMNS: dict[str, Column] = {
    "within_node": lambda places: places.within,
    "between_nodes": lambda places: places.between,
    "leaving_node": lambda places: (places.between > 0).astype(float),
}
TRENDS: dict[str, Covariance] = {
    **{name: _outer(column) for name, column in COLUMNS.items()},
    "bend_within_node": lambda places: _bend(places.within),
    "bend_between_nodes": lambda places: _bend(places.between),
    "steps": lambda places: np.minimum.outer(places.all, places.all),
}
SHAPES: dict[str, Column] = {
    "undivided": lambda places: 2**places.all,
    "node_contention": lambda places: 2**places.within,
    "network_contention": lambda places: 2**places.between,
}


@dataclass(frozen=True)
class Mixture:
    """Members of the average at some counts. weights (members,), means (members, counts), covariances by member."""

    weights: Array
    means: Array
    covariances: Array

    def quantiles(self, shares: Array) -> Array:
        """Quantiles of each count's distribution, shape (shares, counts), by bisection."""
        from scipy.special import ndtr  # imported late: every start of Snakemake imports this module

        deviation = np.sqrt(np.einsum("mcc->mc", self.covariances))
        shape = (len(shares), self.means.shape[1])
        low = np.broadcast_to((self.means - WIDEST * deviation).min(axis=0), shape).copy()
        high = np.broadcast_to((self.means + WIDEST * deviation).max(axis=0), shape).copy()
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            below = np.einsum("m,msc->sc", self.weights, ndtr((middle - self.means[:, None]) / deviation[:, None]))
            under = below < shares[:, None]
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return (low + high) / 2

    def draws(self, number: int, rng: np.random.Generator) -> Array:
        """Joint draws, shape (counts, number)."""
        picked = rng.choice(len(self.weights), number, p=self.weights)
        normal = rng.standard_normal((number, self.means.shape[1]))
        found = np.empty_like(normal)
        for member in np.unique(picked):
            values, vectors = np.linalg.eigh(self.covariances[member])
            root = vectors * np.sqrt(np.maximum(values, 0))
            mine = picked == member
            found[mine] = self.means[member] + normal[mine] @ root.T
        return found.T


@dataclass(frozen=True)
class SeriesModel:
    """A fitted series. Times have any unit; predictions have the same.

    Args:
        ranks: distinct counts, ascending, shape (points,).
        times: mean at each, shape (points,).
        fixed: whether the ranks share a fixed work, so that perfect scaling is 1/N; else perfect scaling is constant.
        per_node: ranks of a node; None if unknown.
        scatter: relative variance of each mean beyond the usual noise, shape (points,).
        priors: as in config/prediction/series.yaml.
        single: relative variance of a single run around the mean of many, beyond the usual noise.
    """

    ranks: Array
    times: Array
    fixed: bool
    per_node: float | None
    scatter: Array
    priors: dict[str, Any] = field(default_factory=declared, repr=False)
    single: float = 0.0

    @property
    def largest(self) -> float:
        """The largest fitted count."""
        return float(self.ranks[-1])

    def interval(self, counts: Array) -> tuple[Array, Array, Array]:
        """Low, median and high of a single measurement at each count (90 % interval), in the unit of the times."""
        low, median, high = self._adjusted(counts)[1]
        scatter = DEVIATIONS / 2 * np.sqrt(np.log1p(self.single))  # of a run, whatever the model does not know
        low, high = median - np.hypot(median - low, scatter), median + np.hypot(high - median, scatter)
        return self._times(low, counts), self._times(median, counts), self._times(high, counts)

    def draws(self, counts: Array, number: int, rng: np.random.Generator) -> Array:
        """Joint draws at the counts, shape (counts, number), with the quantiles of `interval` where ``single`` is 0."""
        mixture, (low, median, high) = self._adjusted(counts)
        raw = mixture.quantiles(INTERVAL)
        found = mixture.draws(number, rng) - raw[1][:, None]
        below, above = (median - low) / (raw[1] - raw[0]), (high - median) / (raw[2] - raw[1])
        return self._times(median[:, None] + found * np.where(found < 0, below[:, None], above[:, None]), counts)

    def misfit(self) -> tuple[float, float]:
        """The largest relative distance of a fitted point from the model's median without it, and its count.

        Both are 0 with three points. The fit follows its own points closely, so that it cannot tell their noise;
        leaving one out can.
        """
        inner = np.arange(1, len(self.ranks) - 1) if len(self.ranks) > LEAST_COUNTS else np.array([], dtype=int)
        places = inner if len(inner) <= MOST_LEFT_OUT else inner[:: -(-len(inner) // MOST_LEFT_OUT)]
        found = [(abs(self._left_out(int(place))), float(self.ranks[place])) for place in places]
        return max(found, default=(0.0, 0.0))

    def _left_out(self, place: int) -> float:
        kept = np.arange(len(self.ranks)) != place
        rest = SeriesModel(
            self.ranks[kept], self.times[kept], self.fixed, self.per_node, self.scatter[kept], self.priors
        )
        return float(rest.interval(self.ranks[[place]])[1][0] / self.times[place] - 1)

    def _logs(self, times: Array, ranks: Array) -> Array:
        """Logarithm of the slowdown, but for a constant."""
        return np.log(times * ranks if self.fixed else times)

    def _times(self, logs: Array, counts: Array) -> Array:
        ranks = counts if logs.ndim == 1 else counts[:, None]
        return np.exp(logs) / ranks if self.fixed else np.exp(logs)

    def _adjusted(self, counts: Array) -> tuple[Mixture, tuple[Array, Array, Array]]:
        """The mixture, and low, median and high with the simple fits and the widening, as logarithms of slowdowns."""
        mixture = self.mixture(counts)
        low, median, high = mixture.quantiles(INTERVAL)
        doublings = np.log2(np.maximum(counts / self.largest, 1))
        own, simple = ((high - low) / DEVIATIONS) ** 2, (self.priors["simple_fits"] * doublings) ** 2
        fits = [self._logs(fit(self.ranks, self.times, counts, self.fixed), counts) for fit in (power_law, three_terms)]
        share = np.where(doublings > 0, own / (own + simple), 0)
        combined = np.clip(median + share * (np.mean(fits, axis=0) - median), low, high)
        widening = self.priors["widening"]
        low, high = median - widening["low"] * (median - low), median + widening["high"] * (high - median)
        return mixture, (low, combined, high)

    def mixture(self, counts: Array) -> Mixture:
        """All members at the counts: every scale, shape and, where it is unknown, number of ranks of a node."""
        candidates = [self.per_node] if self.per_node else self.priors["ranks_per_node"]
        parts = [self._members(counts, float(per_node)) for per_node in candidates]
        weights = np.concatenate([np.exp(part[0] - max(each[0].max() for each in parts)) for part in parts])
        return Mixture(weights / weights.sum(), *(np.concatenate([part[i] for part in parts]) for i in (1, 2)))

    def _members(self, counts: Array, per_node: float) -> tuple[Array, Array, Array]:
        """Log weights (members,), means (members, counts) and covariances of all scales x shapes."""
        fitted = len(self.ranks)
        places = Places.of(np.concatenate([self.ranks, counts]).astype(float), per_node)
        logs = self._logs(self.times, self.ranks)
        level = logs.mean()
        scales = np.array(self.priors["scales"]["values"], dtype=float)
        expected, odds = self._expected(places)
        noise = np.diag(np.full(len(places.all), self.priors["noise"] ** 2))
        covariance = scales[:, None, None] ** 2 * (_covariance(places, self.priors["trends"]) + noise) + FLAT
        covariance[:, range(fitted), range(fitted)] += self.scatter
        slope = sum(self.priors["trends"][name]["mean"] * column(places) for name, column in COLUMNS.items())
        mean = np.sqrt(scales)[:, None, None] * slope + expected
        root = np.linalg.cholesky(covariance[:, :fitted, :fitted])
        rest = np.linalg.solve(root, (logs - level - mean[..., :fitted]).transpose(0, 2, 1))
        gain = np.linalg.solve(root, covariance[:, :fitted, fitted:])
        means = level + mean[..., fitted:] + np.einsum("sfc,sfm->smc", gain, rest)
        spread = covariance[:, fitted:, fitted:] - np.einsum("sfc,sfd->scd", gain, gain)
        weights = -0.5 * (rest**2).sum(axis=1) - np.log(np.einsum("sff->sf", root)).sum(axis=1)[:, None] + odds
        weights -= 0.5 * (np.log(scales)[:, None] / self.priors["scales"]["deviation"]) ** 2
        return weights.ravel(), means.reshape(-1, len(counts)), np.repeat(spread, len(odds), axis=0)

    def _expected(self, places: Places) -> tuple[Array, Array]:
        """The shapes at the places, (shapes, places), the first of which is none, and the logarithms of their odds."""
        sizes = np.array(self.priors["shapes"]["sizes"], dtype=float)[:, None]
        work = "fixed" if self.fixed else "per_rank"
        chances = {name: self.priors["shapes"]["probability"][name][work] for name in SHAPES}
        shapes, odds = [np.zeros((1, len(places.all)))], [1 - sum(chances.values())]
        for name, column in SHAPES.items():
            growth = column(places)
            shapes.append(np.log((1 + sizes * growth) / (1 + sizes * growth[0])))
            odds += [chances[name] / len(sizes)] * len(sizes)
        return np.concatenate(shapes), np.log(odds)


def _covariance(places: Places, trends: dict[str, Any]) -> Array:
    return np.sum([trends[name]["deviation"] ** 2 * of(places) for name, of in TRENDS.items()], axis=0)


def fit_series(
    ranks: Array,
    times: Array,
    fixed: bool,
    per_node: float | None = None,
    scatter: Array | None = None,
    priors: dict[str, Any] | None = None,
    single: float = 0.0,
) -> SeriesModel:
    """The model of points in any order, at most one per count; see `SeriesModel`. It needs `LEAST_COUNTS` counts."""
    order = np.argsort(ranks)
    extra = np.zeros(len(order)) if scatter is None else np.asarray(scatter, dtype=float)[order]
    ranks, times = np.asarray(ranks, dtype=float)[order], np.asarray(times, dtype=float)[order]
    if len(ranks) < LEAST_COUNTS or len(np.unique(ranks)) < len(ranks):
        raise ValueError(f"{LEAST_COUNTS} distinct rank counts are needed")
    return SeriesModel(ranks, times, fixed, per_node, extra, priors or declared(), single)
