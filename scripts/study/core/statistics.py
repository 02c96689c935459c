"""Statistics over repeats."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

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


def difference(one: Any, other: Any) -> Any:
    """One less the other, 0 if that is only the rounding of floats: 238546.95 - 159.35 * 1497 is 0 and not 3e-11.

    Args:
        one: a number or a column of pandas.
        other: likewise; rows of columns are matched by their index.
    """
    one, other = (each.astype(float) if hasattr(each, "astype") else each for each in (one, other))  # None is NaN
    if hasattr(one, "align") and hasattr(other, "align"):
        one, other = one.align(other)
    found = one - other
    limit = ROUNDING * np.maximum(np.abs(one), np.abs(other))
    is_rounding = (np.abs(found) <= limit) & (limit < np.inf)
    if hasattr(found, "mask"):
        return found.mask(is_rounding, 0.0)
    return 0.0 if is_rounding else found


def summarize(values: Iterable[float | None], error: float = ERROR_PER_SIDE) -> Sample:
    """The `Sample` of ``values``, without missing ones.

    The interval is Student's t with n - 1 degrees of freedom; with fewer than two values it is NaN. error: the
    probability with which it fails on each side.
    """
    given = np.asarray([value for value in values if value is not None], dtype=float)
    known = given[~np.isnan(given)]
    n = len(known)
    if n == 0:
        return Sample(0, math.nan, math.nan)
    if n == 1:
        return Sample(1, float(known[0]), math.nan)
    from scipy import special  # imported late: every start of Snakemake imports this module, few need an interval

    spread = float(known.std(ddof=1))
    if spread <= ROUNDING * np.abs(known).max():
        spread = 0.0  # else equal values would have an interval
    half = special.stdtrit(n - 1, 1 - error) * spread / math.sqrt(n)
    return Sample(n, float(known.mean()), float(half))


def pooled_variance(variances: Any, freedom: Any, floor: float = 0.0) -> tuple[float, float]:
    """The variance of single measurements, pooled over groups of repeats without those that are apart.

    A group is apart if its variance is larger than that pooled over the others by an F test (`APART`), the clearest one
    first: a single disturbed repeat says nothing about the other groups.

    Args:
        variances: of each group.
        freedom: degrees of freedom of each, as many; groups with 0 do not count.
        floor: variance that every group has besides; without it, others that agree exactly leave no group apart.

    Returns: the variance, NaN without a group, and its degrees of freedom.
    """
    known = [(float(variance), float(number)) for variance, number in zip(variances, freedom, strict=True) if number]
    while len(known) > 1:
        errors = [_error_of_apart(known, place, floor) for place in range(len(known))]
        if min(errors) >= APART:
            break
        known.pop(int(np.argmin(errors)))
    return _pooled(known) if known else (math.nan, 0.0)


def _pooled(groups: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The mean variance of groups, and the sum of their degrees of freedom."""
    freedom = sum(number for _, number in groups)
    return sum(variance * number for variance, number in groups) / freedom, freedom


def _error_of_apart(groups: Sequence[tuple[float, float]], place: int, floor: float) -> float:
    """The probability that a group's variance is this much larger than the others' if they scatter alike."""
    from scipy import special  # imported late, as in `summarize`

    (own, number), rest = groups[place], [*groups[:place], *groups[place + 1 :]]
    others, freedom = _pooled(rest)
    others += floor
    return float(special.fdtrc(number, freedom, (own + floor) / others)) if others else 1.0


@dataclass(frozen=True)
class LogSample:
    """Repeated measurements by their logarithms, as for ratios; an exact value has a standard deviation of 0.

    n: how many independent ones they are worth, see `independent_number`.
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
        half = student(self.n - 1, error) * self.deviation / math.sqrt(self.n)
        return math.exp(self.mean - half), math.exp(self.mean + half)


def log_sample(values: Iterable[float]) -> LogSample:
    """The `LogSample` of positive ``values`` in the order of time; the deviation is NaN with fewer than two."""
    return sample_of_logarithms(np.log(np.asarray(list(values), dtype=float)))


def sample_of_logarithms(logarithms: Sequence[float] | np.ndarray) -> LogSample:
    """As `log_sample`."""
    found = np.asarray(logarithms, dtype=float)
    deviation = float(found.std(ddof=1)) if len(found) > 1 else math.nan
    return LogSample(float(independent_number(found)), float(found.mean()), deviation)


def independent_number(series: Sequence[float] | np.ndarray) -> Any:
    """How many independent measurements a series of them is worth: all of them, unless each resembles the one before.

    Whether it does is tested by von Neumann's ratio, with the error `RESEMBLING`. Then n is n (1 - r) / (1 + r), with
    the correlation r of neighbours, whose bias in a short series is removed. Never more than n, or less than 3.

    series: in the order of time, shape (..., n); the result has the shape (...).

    References: J. von Neumann, Annals of Mathematical Statistics 12 (1941), 367-395; F. H. C. Marriott and J. A. Pope,
    Biometrika 41 (1954), 390-402; F. W. Zwiers and H. von Storch, Journal of Climate 8 (1995), 336-351.
    """
    given = np.asarray(series, dtype=float)
    n = given.shape[-1]
    if n < LEAST_SERIES:
        return np.full(given.shape[:-1], n)
    centred = given - given.mean(axis=-1, keepdims=True)
    squares = (centred**2).sum(axis=-1)
    known = np.where(squares > 0, squares, 1)
    ratio = (np.diff(given, axis=-1) ** 2).sum(axis=-1) / known
    limit = 2 - 2 * student(math.inf, RESEMBLING) * math.sqrt((n - 2) / (n**2 - 1))
    biased = (centred[..., 1:] * centred[..., :-1]).sum(axis=-1) / known
    r = np.clip(biased + (1 + 3 * biased) / n, 0, MOST_RESEMBLING)
    return np.where((ratio < limit) & (squares > 0), np.maximum(n * (1 - r) / (1 + r), LEAST_WORTH), n)


def exact(value: float) -> LogSample:
    """A value without an uncertainty of its own."""
    return LogSample(math.inf, math.log(value), 0.0)


def from_interval(n: float, low: float, high: float, error: float) -> LogSample:
    """The `LogSample` whose `LogSample.interval` is (low, high)."""
    half = (math.log(high) - math.log(low)) / 2
    return LogSample(n, (math.log(high) + math.log(low)) / 2, half * math.sqrt(n) / student(n - 1, error))


def ratio_interval(one: LogSample, other: LogSample, error: float) -> tuple[float, float, float]:
    """The ratio ``one`` / ``other`` of geometric means, and its interval by Welch's t-test on the logarithms.

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
    half = student(freedom, error) * math.sqrt(variance)
    return math.exp(difference), math.exp(difference - half), math.exp(difference + half)


def ratio_of_means(above: Sequence[float], below: Sequence[float], error: float) -> tuple[float, float, float]:
    """The ratio of the means of ``above`` and ``below``, which are measured in pairs, and its interval.

    The interval is Fieller's: the ratios r for which a t-test does not reject that ``above - r x below`` has the mean
    0. It holds its level also where the mean of ``below`` is uncertain; where that mean cannot be told from 0, it is
    (-inf, inf). Pairs that are proportional without any noise leave no doubt. The estimate is Fuller's, which is nearly
    unbiased with few pairs.

    error: the probability with which the interval fails on each side. NaN without a pair, and where ``below`` is 0
    throughout; no interval with one pair. The pairs are in the order of time, see `independent_number`.

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
    worth = worth_of_pairs(above, below, estimate)
    top_variance, covariance, bottom_variance = (each / worth for each in (top_variance, covariance, bottom_variance))
    t2 = student(worth - 1, error) ** 2
    a, b, c = bottom**2 - t2 * bottom_variance, bottom * top - t2 * covariance, top**2 - t2 * top_variance
    if a <= 0:
        return estimate, -math.inf, math.inf
    half = math.sqrt(max(0.0, b**2 - a * c))
    return estimate, float(b - half) / a, float(b + half) / a


def worth_of_pairs(above: Sequence[float], below: Sequence[float], estimate: float) -> float:
    """How many independent pairs those of `ratio_of_means` are worth. estimate: the ratio of their means."""
    return float(independent_number(np.asarray(above) - estimate * np.asarray(below)))


def student(freedom: float, error: float) -> float:
    """The quantile of Student's t that is exceeded with probability ``error``."""
    from scipy import special  # imported late, see `summarize`

    return float(special.ndtri(1 - error) if math.isinf(freedom) else special.stdtrit(freedom, 1 - error))


def all_pairs(number: int, freedom: float, error: float) -> float:
    """The quantile of t for the differences of all pairs of ``number`` means: the studentized range / root of 2.

    One or more of these differences is beyond it with probability ``error`` if none is real, so also that of the lowest
    mean and any other. With two means it is Student's t. Reference: J. W. Tukey, The problem of multiple comparisons
    (1953); C. Y. Kramer, Biometrics 12 (1956), 307-310.
    """
    from scipy import stats  # imported late, see `summarize`

    return float(stats.studentized_range.isf(error, number, freedom)) / math.sqrt(2)


def p_value(sample: LogSample) -> float:
    """The probability of a geometric mean at least so far from 1 if the true one is 1: two-sided t-test.

    NaN with fewer than two measurements.
    """
    from scipy import special  # imported late, see `summarize`

    if not sample.deviation > 0:
        return math.nan if math.isnan(sample.deviation) else float(sample.mean == 0)
    t = abs(sample.mean) * math.sqrt(sample.n) / sample.deviation
    return float(2 * special.stdtr(sample.n - 1, -t))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values: of all that are below an error, one or more is false with at most that probability.

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


def picked_and_confirmed(gain: float, noise: float, arms: int, screening: int, held_out: int, error: float) -> float:
    """The probability that the one of some arms that has a gain is picked by some blocks and confirmed by others.

    It is picked if its mean is the highest of all arms and of the baseline in ``screening`` blocks; it is confirmed if
    the two-sided paired t-test over ``held_out`` blocks rejects in its favour. The logarithms are normal.

    gain: the logarithm of the arm's ratio. noise: standard deviation of the logarithm of one run within its block.
    """
    from scipy import special  # imported late, see `summarize`

    middle = special.ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES)
    picked = float((special.ndtr(middle + gain * math.sqrt(screening) / noise) ** arms).mean())
    return picked * float((_found_from(held_out, error) < gain / (math.sqrt(2) * noise)).mean())


@cache
def _found_from(blocks: int, error: float) -> np.ndarray:
    """From which difference on the t-test of each of `STUDIES` simulated studies finds it, in standard deviations.

    The blocks are independent. The test allows for those that are not (`independent_number`), which costs some power.
    """
    from scipy import special  # imported late, see `summarize`

    values = np.random.default_rng(SEED).standard_normal((STUDIES, blocks))
    worth = independent_number(values)
    half = special.stdtrit(worth - 1, 1 - error / 2) * values.std(axis=1, ddof=1) / np.sqrt(worth)
    return np.asarray(half - values.mean(axis=1))


def planned_difference(noise: float, blocks: int, error: float, power: float = 0.8) -> float:
    """The ratio (above 1) that a two-sided paired t-test over so many blocks finds with probability ``power``.

    noise: standard deviation of the logarithm of one run within its block.
    """
    return math.exp(math.sqrt(2) * noise * float(np.quantile(_found_from(blocks, error), power)))


def smallest_gain(noise: float, arms: int, screening: int, held_out: int, error: float, power: float = 0.8) -> float:
    """The ratio (above 1) that is `picked_and_confirmed` with probability ``power``. The rest as there."""
    from scipy import optimize  # imported late, see `summarize`

    def excess(gain: float) -> float:
        return picked_and_confirmed(gain, noise, arms, screening, held_out, error) - power

    return math.exp(optimize.brentq(excess, 0, 100 * noise))


def smallest_detectable(sample: LogSample, error: float, power: float = 0.8) -> float:
    """The ratio (above 1) that the t-test of `p_value` finds with probability ``power``, at this n and deviation.

    The distance d of the true logarithm from 0 at which a two-sided test with ``error`` rejects with this power: then
    t = mean x sqrt(n) / deviation has the noncentral t distribution with n - 1 degrees of freedom and noncentrality
    d x sqrt(n) / deviation. The deviation is the observed one, itself uncertain with few measurements. NaN with fewer
    than two. Reference: J. Cohen, Statistical Power Analysis for the Behavioral Sciences (1988), chapter 2.
    """
    from scipy import optimize, special  # imported late, see `summarize`

    if math.isnan(sample.deviation):
        return math.nan
    freedom = sample.n - 1
    limit = student(freedom, error / 2)
    # t = (z + noncentrality) / u: given u, the root of chi-squared / freedom, its tails are a normal distribution's.
    quantiles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    limits = limit * np.sqrt(special.chdtri(freedom, quantiles) / freedom)

    def excess(noncentrality: float) -> float:
        found = special.ndtr(noncentrality - limits) + special.ndtr(-noncentrality - limits)
        return float(found.mean()) - power

    noncentrality = optimize.brentq(excess, 0, 4 * limit + 10)
    effect = float(noncentrality) * sample.deviation / math.sqrt(sample.n)
    return math.exp(effect) if effect < LARGEST_LOGARITHM else math.inf


def pareto(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which points no other point beats: none is as small in both, and smaller in one. NaN is on no front."""
    worse = (x[:, None] >= x) & (y[:, None] >= y) & ((x[:, None] > x) | (y[:, None] > y))
    return ~worse.any(axis=1) & np.isfinite(x) & np.isfinite(y)
