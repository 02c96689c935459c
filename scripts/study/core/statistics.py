"""Statistics over repeats."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from study.core import distributions

ERROR_PER_SIDE = 0.025  # of an interval: every interval that is shown has 95 %
QUANTILES = 10_000  # of a distribution that is integrated
STUDIES = 20_000  # that are simulated for the power of a test
SEED = 2022
LEAST_SERIES = 5  # measurements from which on it can be seen that each resembles the one before
RESEMBLING = 0.1  # error of the test for that
MOST_RESEMBLING = 0.7  # correlation with the one before; more cannot be told from a few measurements
LEAST_WORTH = 3
LARGEST_LOGARITHM = 700  # of a number that a float can hold
MUCH_LARGER = 4  # times the pooled variance: a group whose repeats scatter by their own
APART = 0.001  # error of the test that a group of repeats scatters more than all the others


@dataclass(frozen=True)
class Sample:
    """Mean and half-width of the 95 % confidence interval of repeated measurements; NaN if not available."""

    n: int
    mean: float
    ci95: float


ROUNDING = 1e-12  # of floats: a relative difference that is none


def subtract(minuend: Any, subtrahend: Any) -> Any:
    """The difference of two numbers or columns, 0 if it is only the rounding of floats.

    Args:
        minuend: a number or a column of pandas.
        subtrahend: likewise; rows of columns are matched by their index.
    """
    numbers = (minuend, subtrahend)
    minuend, subtrahend = (each.astype(float) if hasattr(each, "astype") else each for each in numbers)  # None is NaN
    if hasattr(minuend, "align") and hasattr(subtrahend, "align"):
        minuend, subtrahend = minuend.align(subtrahend)
    remainder = minuend - subtrahend
    limit = ROUNDING * np.maximum(np.abs(minuend), np.abs(subtrahend))
    is_rounding = (np.abs(remainder) <= limit) & (limit < np.inf)
    if hasattr(remainder, "mask"):
        return remainder.mask(is_rounding, 0.0)
    return 0.0 if is_rounding else remainder


def compute_spread_pct(values: Any) -> float:
    """100 x (longest / shortest - 1) of a column of pandas without missing values; NaN of fewer than two."""
    return float(100 * (values.max() / values.min() - 1)) if values.count() > 1 else math.nan


def summarize(values: Iterable[float | None], error: float = ERROR_PER_SIDE) -> Sample:
    """Mean and confidence interval (`Sample`) of ``values``, without missing ones.

    The interval is Student's t with n - 1 degrees of freedom; with fewer than two values it is NaN. error: the
    probability with which it fails on each side.
    """
    numbers = np.asarray([value for value in values if value is not None], dtype=float)
    present = numbers[~np.isnan(numbers)]
    n = len(present)
    if n == 0:
        return Sample(0, math.nan, math.nan)
    if n == 1:
        return Sample(1, float(present[0]), math.nan)
    spread = float(present.std(ddof=1))
    if spread <= ROUNDING * np.abs(present).max():
        spread = 0.0  # else equal values would have an interval
    half = compute_t_quantile(n - 1, error) * spread / math.sqrt(n)
    return Sample(n, float(present.mean()), float(half))


def pool_variance(variances: Any, freedom: Any, floor: float = 0.0) -> tuple[float, float]:
    """Variance of a single measurement, pooled over groups of repeats without groups that scatter far more.

    A group is apart if its variance is larger than that pooled over the others by an F test (`APART`), the clearest one
    first: a single disturbed repeat says nothing about the other groups.

    Args:
        variances: of each group.
        freedom: degrees of freedom of each, as many; groups with 0 do not count.
        floor: variance that every group has besides; without it, others that agree exactly leave no group apart.

    Returns: the variance, NaN without a group, and its degrees of freedom.
    """
    groups = [(float(variance), float(number)) for variance, number in zip(variances, freedom, strict=True) if number]
    while len(groups) > 1:
        errors = [_compute_apart_probability(groups, place, floor) for place in range(len(groups))]
        if min(errors) >= APART:
            break
        groups.pop(int(np.argmin(errors)))
    return _pool(groups) if groups else (math.nan, 0.0)


def _pool(groups: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(mean variance of groups, sum of their degrees of freedom)."""
    freedom = sum(number for _, number in groups)
    return sum(variance * number for variance, number in groups) / freedom, freedom


def _compute_apart_probability(groups: Sequence[tuple[float, float]], place: int, floor: float) -> float:
    """Probability that one group's variance exceeds the others' this much if all scatter alike."""
    (own, number), rest = groups[place], [*groups[:place], *groups[place + 1 :]]
    others, freedom = _pool(rest)
    others += floor
    return distributions.compute_f_tail(number, freedom, (own + floor) / others) if others else 1.0


@dataclass(frozen=True)
class LogSample:
    """Repeated measurements by their logarithms, as for ratios; an exact value has a standard deviation of 0.

    n: how many independent ones they are worth, see `count_independent`.
    """

    n: float
    mean: float
    deviation: float

    @property
    def middle(self) -> float:
        """The geometric mean of the measurements."""
        return math.exp(self.mean)

    def interval(self, error: float) -> tuple[float, float]:
        """The geometric mean's interval (Student's t) that fails on each side with probability ``error``."""
        half = compute_t_quantile(self.n - 1, error) * self.deviation / math.sqrt(self.n)
        return math.exp(self.mean - half), math.exp(self.mean + half)


def summarize_ratios(values: Iterable[float]) -> LogSample:
    """The `LogSample` of positive ``values`` in the order of time; its deviation is NaN with fewer than two."""
    return summarize_logarithms(np.log(np.asarray(list(values), dtype=float)))


def summarize_logarithms(logarithms: Sequence[float] | np.ndarray) -> LogSample:
    """The `LogSample` of values given as logarithms, in the order of time."""
    series = np.asarray(logarithms, dtype=float)
    deviation = float(series.std(ddof=1)) if len(series) > 1 else math.nan
    return LogSample(float(count_independent(series)), float(series.mean()), deviation)


def count_independent(series: Sequence[float] | np.ndarray) -> Any:
    """Number of independent measurements that a series is worth; fewer than n if each resembles the one before.

    Whether it does is tested by von Neumann's ratio, with the error `RESEMBLING`. Then n is n (1 - r) / (1 + r), with
    the correlation r of neighbours, whose bias in a short series is removed. Never more than n, or less than 3.

    series: in the order of time, shape (..., n); the result has the shape (...).

    References: J. von Neumann, Annals of Mathematical Statistics 12 (1941), 367-395; F. H. C. Marriott and J. A. Pope,
    Biometrika 41 (1954), 390-402; F. W. Zwiers and H. von Storch, Journal of Climate 8 (1995), 336-351.
    """
    measurements = np.asarray(series, dtype=float)
    n = measurements.shape[-1]
    if n < LEAST_SERIES:
        return np.full(measurements.shape[:-1], n)
    centred = measurements - measurements.mean(axis=-1, keepdims=True)
    squares = (centred**2).sum(axis=-1)
    divisor = np.where(squares > 0, squares, 1)
    ratio = (np.diff(measurements, axis=-1) ** 2).sum(axis=-1) / divisor
    limit = 2 - 2 * compute_t_quantile(math.inf, RESEMBLING) * math.sqrt((n - 2) / (n**2 - 1))
    biased = (centred[..., 1:] * centred[..., :-1]).sum(axis=-1) / divisor
    r = np.clip(biased + (1 + 3 * biased) / n, 0, MOST_RESEMBLING)
    return np.where((ratio < limit) & (squares > 0), np.maximum(n * (1 - r) / (1 + r), LEAST_WORTH), n)


def make_exact_sample(value: float) -> LogSample:
    """The `LogSample` of an exact value."""
    return LogSample(math.inf, math.log(value), 0.0)


def make_sample_from_interval(n: float, low: float, high: float, error: float) -> LogSample:
    """The `LogSample` of ``n`` measurements whose interval is (low, high)."""
    half = (math.log(high) - math.log(low)) / 2
    return LogSample(n, (math.log(high) + math.log(low)) / 2, half * math.sqrt(n) / compute_t_quantile(n - 1, error))


def compare_geometric_means(one: LogSample, other: LogSample, error: float) -> tuple[float, float, float]:
    """(ratio, low, high) of two geometric means, by Welch's t-test on the logarithms.

    error: the probability with which the interval fails on each side. The samples are independent, and their variances
    may differ. NaN with fewer than two measurements. Reference: B. L. Welch, Biometrika 34 (1947), 28-35.
    """
    parts = [(each.deviation**2 / each.n, each.n - 1) for each in (one, other)]
    variance = sum(part for part, _ in parts)
    difference = one.mean - other.mean
    if variance == 0:
        return (math.exp(difference),) * 3
    if math.isnan(variance):
        return math.exp(difference), math.nan, math.nan
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    half = compute_t_quantile(freedom, error) * math.sqrt(variance)
    return math.exp(difference), math.exp(difference - half), math.exp(difference + half)


def compare_paired_means(above: Sequence[float], below: Sequence[float], error: float) -> tuple[float, float, float]:
    """(ratio, low, high) of the means of ``above`` and ``below``, which are measured in pairs.

    The interval is Fieller's: the ratios r for which a t-test does not reject that ``above - r x below`` has the mean
    0. It holds its level also where the mean of ``below`` is uncertain; where that mean cannot be told from 0, it is
    (-inf, inf). Pairs that are proportional without any noise leave no doubt. The estimate is Fuller's, which is nearly
    unbiased with few pairs.

    error: the probability with which the interval fails on each side. NaN without a pair, and where ``below`` is 0
    throughout; no interval with one pair. The pairs are in the order of time, see `count_independent`.

    References: E. C. Fieller, Journal of the Royal Statistical Society B 16 (1954), 175-185; W. A. Fuller,
    Econometrica 45 (1977), 939-953.
    """
    n = len(above)
    if not np.any(below):
        return math.nan, math.nan, math.nan
    top, bottom = float(np.mean(above)), float(np.mean(below))
    if n == 1:
        return top / bottom, math.nan, math.nan
    (top_variance, covariance), (_, bottom_variance) = np.cov(above, below)
    estimate = float((bottom * top + covariance / n) / (bottom**2 + bottom_variance / n))
    if np.allclose(above, estimate * np.asarray(below), rtol=1e-9, atol=0):
        return estimate, estimate, estimate
    independent_pairs = count_independent_pairs(above, below, estimate)
    top_variance, covariance, bottom_variance = (
        each / independent_pairs for each in (top_variance, covariance, bottom_variance)
    )
    t2 = compute_t_quantile(independent_pairs - 1, error) ** 2
    a, b, c = bottom**2 - t2 * bottom_variance, bottom * top - t2 * covariance, top**2 - t2 * top_variance
    if a <= 0:
        return estimate, -math.inf, math.inf
    half = math.sqrt(max(0.0, b**2 - a * c))
    return estimate, float(b - half) / a, float(b + half) / a


def count_independent_pairs(above: Sequence[float], below: Sequence[float], estimate: float) -> float:
    """Number of independent pairs that those of `compare_paired_means` are worth. estimate: their ratio of means."""
    return float(count_independent(np.asarray(above) - estimate * np.asarray(below)))


def compute_t_quantile(freedom: float, error: float) -> float:
    """Quantile of Student's t that is exceeded with probability ``error``."""
    return float(distributions.compute_t_quantile(freedom, error))


def compute_all_pairs_quantile(number: int, freedom: float, error: float) -> float:
    """Quantile of t for the differences of all pairs of ``number`` means (Tukey-Kramer).

    One or more of these differences is beyond it with probability ``error`` if none is real, so also that of the lowest
    mean and any other. With two means it is Student's t. Reference: J. W. Tukey, The problem of multiple comparisons
    (1953); C. Y. Kramer, Biometrics 12 (1956), 307-310.
    """
    return distributions.compute_studentized_range_quantile(number, freedom, error) / math.sqrt(2)


def compute_p_value(sample: LogSample) -> float:
    """Two-sided p-value of a t-test that the true geometric mean is 1.

    NaN with fewer than two measurements.
    """
    if not sample.deviation > 0:
        return math.nan if math.isnan(sample.deviation) else float(sample.mean == 0)
    t = abs(sample.mean) * math.sqrt(sample.n) / sample.deviation
    return float(2 * distributions.compute_t_tail(sample.n - 1, t))


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values, in the given order.

    In rising order, the k-th of m (from 0) is multiplied by m - k, and is at least as large as the one before. NaN is
    no test, and stays. Reference: S. Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    adjusted = [math.nan] * len(p_values)
    order = sorted((index for index, p in enumerate(p_values) if not math.isnan(p)), key=lambda index: p_values[index])
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def compute_confirmation_probability(
    gain: float, noise: float, arms: int, screening: int, held_out: int, error: float
) -> float:
    """Probability that the one better of several arms is picked in screening blocks and confirmed in held-out ones.

    It is picked if its mean is the highest of all arms and of the baseline in ``screening`` blocks; it is confirmed if
    the two-sided paired t-test over ``held_out`` blocks rejects in its favour. The logarithms are normal.

    gain: the logarithm of the arm's ratio. noise: standard deviation of the logarithm of one run within its block.
    """
    middle = distributions.compute_normal_quantile((np.arange(QUANTILES) + 0.5) / QUANTILES)
    at_most = distributions.compute_normal_probability(middle + gain * math.sqrt(screening) / noise)
    picked = float((at_most**arms).mean())
    return picked * float((_simulate_detectable_differences(held_out, error) < gain / (math.sqrt(2) * noise)).mean())


@cache
def _simulate_detectable_differences(blocks: int, error: float) -> np.ndarray:
    """Smallest difference that the t-test finds in each of `STUDIES` simulated studies, in standard deviations.

    The blocks are independent. The test allows for those that are not (`count_independent`), which costs some power.
    """
    values = np.random.default_rng(SEED).standard_normal((STUDIES, blocks))
    independent = count_independent(values)
    quantiles = distributions.compute_t_quantile(independent - 1, error / 2)
    half = quantiles * values.std(axis=1, ddof=1) / np.sqrt(independent)
    return np.asarray(half - values.mean(axis=1))


def plan_detectable_ratio(noise: float, blocks: int, error: float, power: float = 0.8) -> float:
    """Ratio above 1 that a two-sided paired t-test over ``blocks`` finds with probability ``power``.

    noise: standard deviation of the logarithm of one run within its block.
    """
    return math.exp(math.sqrt(2) * noise * float(np.quantile(_simulate_detectable_differences(blocks, error), power)))


def find_confirmable_ratio(
    noise: float, arms: int, screening: int, held_out: int, error: float, power: float = 0.8
) -> float:
    """Ratio above 1 that is picked and confirmed with probability ``power``, see `compute_confirmation_probability`."""

    def exceed(gain: np.ndarray) -> np.ndarray:
        return np.array(compute_confirmation_probability(float(gain), noise, arms, screening, held_out, error) - power)

    return math.exp(distributions.find_root(exceed, 0, 100 * noise))


def find_detectable_ratio(sample: LogSample, error: float, power: float = 0.8) -> float:
    """Ratio above 1 that a t-test with this sample's n and deviation finds with probability ``power``.

    The distance d of the true logarithm from 0 at which a two-sided test with ``error`` rejects with this power: then
    t = mean x sqrt(n) / deviation has the noncentral t distribution with n - 1 degrees of freedom and noncentrality
    d x sqrt(n) / deviation. The deviation is the observed one, itself uncertain with few measurements. NaN with fewer
    than two. Reference: J. Cohen, Statistical Power Analysis for the Behavioral Sciences (1988), chapter 2.
    """
    if math.isnan(sample.deviation):
        return math.nan
    freedom = sample.n - 1
    limit = compute_t_quantile(freedom, error / 2)
    # t = (z + noncentrality) / u: given u, the root of chi-squared / freedom, its tails are a normal distribution's.
    scales, weights = distributions.list_scales(freedom, QUANTILES)

    def exceed(noncentrality: np.ndarray) -> np.ndarray:
        sides = (noncentrality - limit * scales, -noncentrality - limit * scales)
        return np.array(weights @ sum(map(distributions.compute_normal_probability, sides)) - power)

    noncentrality = distributions.find_root(exceed, 0, 4 * limit + 10)
    effect = float(noncentrality) * sample.deviation / math.sqrt(sample.n)
    return math.exp(effect) if effect < LARGEST_LOGARITHM else math.inf


def find_pareto_front(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mask of the points that no other point beats in both coordinates (smaller is better); NaN is on no front."""
    worse = (x[:, None] >= x) & (y[:, None] >= y) & ((x[:, None] > x) | (y[:, None] > y))
    return ~worse.any(axis=1) & np.isfinite(x) & np.isfinite(y)
