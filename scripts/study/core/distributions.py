"""Probabilities and quantiles of the distributions that intervals and tests need, and three solvers, by NumPy alone.

So an installation that plans, measures and reports has no SciPy. Tests compare each with it, for up to 100,000 degrees
of freedom.
"""

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

MOST_STEPS = 2000  # of a continued fraction
MOST_HALVINGS = 200  # of the interval of a root
PRECISION = 1e-15  # relative
TINY = 1e-300  # in place of 0 in a denominator or a logarithm
GOLDEN = (math.sqrt(5) - 1) / 2
NEGLIGIBLE = 40  # -log of a density relative to its maximum, where an integral ends
DEGREE = 30  # of the polynomial of a quantile of t
LEAST_DENSITY = 10  # of its points, for each unit of a logarithm
POINTS = (
    200  # at least, of an integral; the trapezoidal rule is exact to rounding for densities that vanish at both ends
)

_erfc = np.vectorize(math.erfc, otypes=[float])
_log_gamma = np.vectorize(math.lgamma, otypes=[float])
compute_normal_quantile = np.vectorize(NormalDist().inv_cdf, otypes=[float])


def compute_normal_probability(x: Any) -> Any:
    """Probability that a standard normal variable is at most ``x``, of the shape of ``x``."""
    return 0.5 * _erfc(-np.asarray(x, dtype=float) / math.sqrt(2))


def compute_beta_probability(x: Any, rest: Any, a: Any, b: Any) -> np.ndarray:
    """Regularized incomplete beta function I_x(a, b), of the shape to which the arguments are broadcast.

    By its continued fraction (NIST Digital Library of Mathematical Functions, 8.17.22) with Lentz's method.
    rest: 1 - x, which the difference would round where x is almost 1.
    """
    x, rest, a, b = (np.array(each, dtype=float) for each in np.broadcast_arrays(x, rest, a, b))
    is_swapped = x > (a + 1) / (a + b + 2)  # there, I_x(a, b) = 1 - I_(1 - x)(b, a) converges faster
    x, rest = (np.maximum(each, TINY) for each in (np.where(is_swapped, rest, x), np.where(is_swapped, x, rest)))
    a, b = np.where(is_swapped, b, a), np.where(is_swapped, a, b)
    logarithm = a * np.log(x) + b * np.log(rest) + _log_gamma(a + b) - _log_gamma(a) - _log_gamma(b)
    fraction = c = np.ones_like(x)
    d = np.zeros_like(x)
    for step in range(MOST_STEPS):
        half = step // 2
        if step == 0:
            term = np.ones_like(x)
        elif step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        d = 1 / _avoid_zero(1 + term * d)
        c = _avoid_zero(1 + term / c) if step > 1 else c
        fraction = fraction * c * d
        if step > 1 and np.all(np.abs(c * d - 1) <= PRECISION):
            break
    share = np.exp(logarithm) * fraction / a
    return np.where(is_swapped, 1 - share, share)


def _avoid_zero(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) < TINY, TINY, values)


def compute_t_tail(freedom: Any, t: Any) -> np.ndarray:
    """Probability that Student's t exceeds ``t``, at least 0."""
    freedom, squares = np.asarray(freedom, dtype=float), np.square(t)
    sums = freedom + squares
    return 0.5 * compute_beta_probability(freedom / sums, squares / sums, freedom / 2, 0.5)


def compute_t_quantile(freedom: Any, error: float) -> np.ndarray:
    """Quantile of Student's t that is exceeded with probability ``error`` below 0.5, of the shape of ``freedom``.

    With infinitely many degrees of freedom it is the normal distribution's; NaN stays.
    """
    inverse = 1 / np.asarray(freedom, dtype=float)
    logarithms = np.asarray(_fit_t_quantile(error)(inverse))
    if (is_below_one := inverse > 1).any():
        logarithms[is_below_one] = _solve_t_quantile(inverse[is_below_one], error)
    return np.exp(logarithms)


def _solve_t_quantile(inverse: np.ndarray, error: float) -> np.ndarray:
    """Logarithm of the quantile of t. inverse: of the degrees of freedom."""

    def compare_tails(logarithm: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(np.maximum(compute_t_tail(1 / inverse, np.exp(logarithm)), TINY)) - math.log(error))

    normal = math.log(-compute_normal_quantile(error))
    return find_root(compare_tails, np.full(inverse.shape, normal - 0.01), 5 - math.log(error) * inverse)


@functools.lru_cache(maxsize=256)
def _fit_t_quantile(error: float) -> np.polynomial.Chebyshev:
    """The logarithm of the quantile as a polynomial in 1 / degrees of freedom from 0 to 1, to 1e-11."""
    return np.polynomial.Chebyshev.interpolate(_solve_t_quantile, DEGREE, domain=[0, 1], args=(error,))


def compute_f_tail(upper: float, lower: float, f: float) -> float:
    """Probability that F with ``upper`` and ``lower`` degrees of freedom exceeds ``f``."""
    total = lower + upper * f
    return float(compute_beta_probability(lower / total, upper * f / total, lower / 2, upper / 2)) if f > 0 else 1.0


@functools.lru_cache(maxsize=64)
def list_scales(freedom: float, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """(values, weights that sum to 1) of the root of chi-squared / ``freedom``, to integrate a function of it."""
    if math.isinf(freedom):
        return np.ones(1), np.ones(1)

    def compute_logarithm(x: Any) -> Any:
        return freedom * (x - np.expm1(2 * x) / 2)  # of the density of the logarithm x, relative to its maximum

    def exceed(x: np.ndarray) -> np.ndarray:
        return np.asarray(compute_logarithm(x) + NEGLIGIBLE)

    low = find_root(exceed, -NEGLIGIBLE / freedom - 1, 0.0)
    high = find_root(exceed, 0.0, math.log1p(2 * NEGLIGIBLE / freedom) + 1)
    logarithms = np.linspace(float(low), float(high), max(points, math.ceil(LEAST_DENSITY * float(high - low))))
    weights = np.exp(compute_logarithm(logarithms))
    return np.exp(logarithms), weights / weights.sum()


def compute_studentized_range_tail(number: int, freedom: float, q: float) -> float:
    """Probability that the range of ``number`` normal means exceeds ``q`` of their estimated deviations."""
    scales, weights = list_scales(freedom)
    most = np.linspace(-9, 9, POINTS // 2)  # the largest of the means
    density = number * np.exp(-(most**2) / 2) / math.sqrt(2 * math.pi) * (most[1] - most[0])
    least = compute_normal_probability(most[:, None] - q * scales)
    within = np.clip(compute_normal_probability(most)[:, None] - least, 0, 1) ** (number - 1)
    return float(1 - density @ within @ weights)


def compute_studentized_range_quantile(number: int, freedom: float, error: float) -> float:
    """Studentized range of ``number`` means that is exceeded with probability ``error``."""

    def compare_tails(logarithm: np.ndarray) -> np.ndarray:
        tail = compute_studentized_range_tail(number, freedom, math.exp(float(logarithm)))
        return np.array(math.log(max(tail, TINY)) - math.log(error))

    # For two means it is root 2 times Student's t; for more, at most that of all pairs (Bonferroni).
    errors = (error / 2, error / (number * (number - 1)))
    low, high = (math.log(math.sqrt(2) * float(compute_t_quantile(freedom, each))) for each in errors)
    return math.exp(float(find_root(compare_tails, low - 0.01, high + 0.01)))


def find_root(function: Callable[[np.ndarray], np.ndarray], low: Any, high: Any) -> np.ndarray:
    """Where an elementwise function is 0 between ``low`` and ``high``, at which its signs differ; of their shape.

    Inverse quadratic interpolation where it is safe, else bisection: T. R. Chandrupatla, Advances in Engineering
    Software 28 (1997), 145-149.
    """
    b, a, c = (np.array(each, dtype=float) for each in (low, high, high))
    fa, fb = function(a), function(b)
    fc, share = fa, np.full(a.shape, 0.5)
    for _ in range(MOST_HALVINGS):
        x = a + share * (b - a)
        fx = function(x)
        is_same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(is_same, a, b), np.where(is_same, fa, fb)
        b, fb = np.where(is_same, b, a), np.where(is_same, fb, fa)
        a, fa = x, fx
        best = np.where(np.abs(fa) < np.abs(fb), a, b)
        width = np.abs(b - a)
        tolerance = PRECISION * (1 + np.abs(best))
        if np.all((width <= 2 * tolerance) | (fa == 0)):
            return best
        with np.errstate(divide="ignore", invalid="ignore"):
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            is_safe = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
            quadratic = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            least = np.minimum(tolerance / width, 0.5)
        share = np.where(is_safe & np.isfinite(quadratic), np.clip(quadratic, least, 1 - least), 0.5)
    return best


def find_minimum(function: Callable[[float], float], low: float, high: float, precision: float = 1e-7) -> float:
    """Where a function with one minimum between ``low`` and ``high`` has it, by golden sections.

    precision: relative to the whole interval.
    """
    width = precision * (high - low)
    first, second = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_first, at_second = function(first), function(second)
    while high - low > width:
        if at_first <= at_second:
            high, second, at_second = second, first, at_first
            first = high - GOLDEN * (high - low)
            at_first = function(first)
        else:
            low, first, at_first = first, second, at_second
            second = low + GOLDEN * (high - low)
            at_second = function(second)
    return (low + high) / 2


def fit_nonnegative(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Least-squares coefficients of at least 0, shape (columns,).

    By active sets, from none: of several solutions, as with fewer points than columns, the one that they reach. C. L.
    Lawson and R. J. Hanson, Solving Least Squares Problems (1974), chapter 23.

    Args:
        columns: shape (points, columns).
        values: shape (points,).
    """
    solution, is_used = np.zeros(columns.shape[1]), np.zeros(columns.shape[1], dtype=bool)
    tolerance = 10 * max(columns.shape) * np.finfo(float).eps * float(np.linalg.norm(columns, 1))

    def fit_used() -> np.ndarray:
        fitted = np.zeros(len(solution))
        fitted[is_used] = np.linalg.lstsq(columns[:, is_used], values, rcond=None)[0]
        return fitted

    for _ in range(3 * len(solution)):
        gradient = np.where(is_used, -math.inf, columns.T @ (values - columns @ solution))
        if gradient.max() <= tolerance:
            break
        is_used[gradient.argmax()] = True
        fitted = fit_used()
        while (is_negative := is_used & (fitted < 0)).any():
            step = (solution[is_negative] / (solution - fitted)[is_negative]).min()
            solution = solution + step * (fitted - solution)
            is_used &= solution > tolerance
            fitted = fit_used()
        solution = fitted
    return solution
