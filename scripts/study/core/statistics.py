"""Statistics over repeats."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """Mean and half-width of the 95 % confidence interval of repeated measurements; NaN if not available."""

    n: int
    mean: float
    ci95: float


def summarize(values: Iterable[float | None]) -> Sample:
    """The `Sample` of ``values``, without missing ones.

    The interval is Student's t with n - 1 degrees of freedom; with fewer than two values it is NaN.
    """
    given = np.asarray([value for value in values if value is not None], dtype=float)
    known = given[~np.isnan(given)]
    n = len(known)
    if n == 0:
        return Sample(0, math.nan, math.nan)
    if n == 1:
        return Sample(1, float(known[0]), math.nan)
    from scipy import special  # imported late: every start of Snakemake imports this module, few need an interval

    half = special.stdtrit(n - 1, 0.975) * known.std(ddof=1) / math.sqrt(n)
    return Sample(n, float(known.mean()), float(half))


@dataclass(frozen=True)
class LogSample:
    """Repeated measurements by their logarithms, as for ratios; an exact value has a standard deviation of 0."""

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
    """The `LogSample` of positive ``values``; the deviation is NaN with fewer than two."""
    logarithms = np.log(np.asarray(list(values), dtype=float))
    n = len(logarithms)
    return LogSample(n, float(logarithms.mean()), float(logarithms.std(ddof=1)) if n > 1 else math.nan)


def exact(value: float) -> LogSample:
    """A value without an uncertainty of its own."""
    return LogSample(math.inf, math.log(value), 0.0)


def from_interval(n: int, low: float, high: float, error: float) -> LogSample:
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


def student(freedom: float, error: float) -> float:
    """The quantile of Student's t that is exceeded with probability ``error``."""
    from scipy import special  # imported late, see `summarize`

    return float(special.ndtri(1 - error) if math.isinf(freedom) else special.stdtrit(freedom, 1 - error))
