"""Sparse Bayesian regression: which of some named terms explain the observations, and how large they are.

y = sum of x_j b_j over the active terms, with an error that is relative to a given scale of each observation. Every b_j
is at least 0. A term that is active has a half-normal prior; its scale is one of `SCALES` values between the term's low
and high. All sets of at most `MOST_ACTIVE` optional terms with all their scales are weighed by their evidence, for each
size of the error in `ERRORS`. This is a spike-and-slab prior (Mitchell and Beauchamp 1988) that is summed over and not
sampled: no chain has to converge.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from study.core.errors import StudyError

SCALES = 3
MOST_ACTIVE = 5
ERRORS = (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2)  # relative standard deviations of an observation
DRAWS = 4000
CHUNK = 4096  # sets that are weighed at once: they fit a cache
KEPT = 600  # of the weighed sets, those with nearly all of the weight
TRIED = 20_000  # sets at most until that many are kept
TRIES = 64  # draws of a set, of which those with a negative coefficient are refused


@dataclass(frozen=True)
class Terms:
    """The columns of a regression.

    low, high: range of each coefficient in its unit; the two may be equal. always: whether the term is always active.
    probability: that a term which is not always active is active, before any observation.
    """

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    always: np.ndarray
    probability: float = 0.3


@dataclass(frozen=True)
class Posterior:
    """Draws of the coefficients, shape (draws, terms), and of the relative error, shape (draws,)."""

    terms: Terms
    coefficients: np.ndarray
    errors: np.ndarray

    def at(self, x: np.ndarray) -> np.ndarray:
        """Draws of the mean response at ``x``, shape (points, terms); returns (points, draws)."""
        return x @ self.coefficients.T

    def active(self) -> dict[str, float]:
        """The probability that each term is active."""
        return dict(zip(self.terms.names, (self.coefficients > 0).mean(0).tolist(), strict=True))


@dataclass(frozen=True)
class Products:
    """All that the evidence needs of the observations: x'x, x'y, y'y (each relative to the scale), and their number."""

    gram: np.ndarray
    projected: np.ndarray
    squares: float
    observations: int


def fit(x: np.ndarray, y: np.ndarray, scale: np.ndarray, terms: Terms, rng: np.random.Generator) -> Posterior:
    """The posterior given observations.

    Args:
        x: shape (observations, terms), at least 0. A term whose column is 0 everywhere keeps its prior.
        y: shape (observations,).
        scale: shape (observations,), above 0: the errors are relative to it.
        terms: of the columns of x.
        rng: for the draws.
    """
    weighted, response = x / scale[:, None], y / scale
    products = Products(weighted.T @ weighted, response @ weighted, float(response @ response), len(y))
    chosen, scales = _sets(terms, min(MOST_ACTIVE, len(y)))
    errors = np.array(ERRORS)
    evidence = _evidence(products, chosen, scales, errors, terms)
    return _draw(products, chosen, scales, errors, evidence, terms, rng)


def _sets(terms: Terms, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The sets of active terms, shape (most terms, sets), padded with -1; and the scale of each, 1 where padded."""
    chosen = _combinations(tuple(terms.always.tolist()), most)
    steps = np.linspace(0, 1, SCALES)
    grid = np.exp(np.log(terms.low)[:, None] * (1 - steps) + np.log(terms.high)[:, None] * steps)
    indices, which = chosen[..., 0].T, chosen[..., 1].T
    return indices, np.where(indices >= 0, grid[indices, which], 1.0)


@functools.cache
def _combinations(always: tuple[bool, ...], most: int) -> np.ndarray:
    """Shape (sets, most terms, 2): indices of terms and of their scales; -1 is no term. most: active optional terms."""
    base = [(index, SCALES - 1) for index, fixed in enumerate(always) if fixed]
    free = [index for index, fixed in enumerate(always) if not fixed]
    width = len(base) + min(most, len(free))
    rows = []
    for number in range(width - len(base) + 1):
        for picked in itertools.combinations(free, number):
            for scales in itertools.product(range(SCALES), repeat=number):
                row = base + list(zip(picked, scales, strict=True))
                rows.append(row + [(-1, 0)] * (width - len(row)))
    return np.array(rows)


def _normal_equations(products: Products, chosen: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Products x'x and x'y of each set's terms in units of their scales; 0 where padded.

    chosen, scales: shape (most terms, sets). Returns shapes (most terms, most terms, sets) and (most terms, sets).
    """
    sizes = np.where(chosen >= 0, scales, 0.0)
    gram = products.gram[chosen[:, None], chosen[None, :]] * sizes[:, None] * sizes[None, :]
    return gram, products.projected[chosen] * sizes


def _evidence(
    products: Products, chosen: np.ndarray, scales: np.ndarray, errors: np.ndarray, terms: Terms
) -> np.ndarray:
    """Logarithm of each set's weight for each error, without the refusal of negative coefficients, (errors, sets)."""
    active = (chosen >= 0).sum(axis=0)
    odds = np.log(terms.probability / (1 - terms.probability)) - np.log(SCALES)
    prior = (active - terms.always.sum()) * odds + active * np.log(2)  # a half-normal has twice the density
    found = np.empty((len(errors), chosen.shape[1]))
    for first in range(0, chosen.shape[1], CHUNK):
        part = slice(first, first + CHUNK)
        gram, projected = _normal_equations(products, chosen[:, part], scales[:, part])
        for place, error in enumerate(errors):
            log_determinant, fitted = _solved(gram / error**2, projected / error**2)
            misfit = products.squares / error**2 - fitted
            found[place, part] = -0.5 * (misfit + log_determinant) - products.observations * np.log(error)
    return found + prior


def _solved(gram: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the determinant of each A = ``gram`` + 1, and r' A^-1 r, each of shape (sets,).

    Eliminates in all small matrices at once; NumPy's Cholesky factors would be made one after the other. Changes both.
    """
    log_determinant, fitted = np.zeros(gram.shape[2]), np.zeros(gram.shape[2])
    for j in range(len(gram)):
        pivot = gram[j, j] + 1
        log_determinant += np.log(pivot)
        fitted += right[j] ** 2 / pivot
        for i in range(j + 1, len(gram)):
            share = gram[j, i] / pivot
            right[i] -= share * right[j]
            gram[i, i:] -= share * gram[j, i:]
    return log_determinant, fitted


def _draw(
    products: Products, chosen: np.ndarray, scales: np.ndarray, errors: np.ndarray, evidence: np.ndarray, terms: Terms,
    rng: np.random.Generator,
) -> Posterior:  # fmt: skip
    """Draws from the likeliest sets, in proportion to their weight.

    Coefficients are at least 0: the share of a set's draws without a negative one is part of its weight.
    """
    weights, draws, of_draw = [], [], []
    for place in np.argsort(evidence, axis=None)[::-1][:TRIED]:
        error, index = np.unravel_index(place, evidence.shape)
        sample = _draws_of_set(
            products, chosen[:, index], scales[:, index], float(errors[error]), len(terms.names), rng
        )
        if len(sample):
            weights.append(np.log(len(sample) / TRIES) + evidence[error, index])
            draws.append(sample)
            of_draw.append(errors[error])
        if len(draws) == KEPT:
            break
    if not draws:
        raise StudyError("no combination of mechanisms with coefficients of at least 0 fits these measurements")
    shares = np.exp(np.array(weights) - max(weights))
    picked = rng.choice(len(draws), DRAWS, p=shares / shares.sum())
    rows = [draws[place][rng.integers(len(draws[place]))] for place in picked]
    return Posterior(terms, np.array(rows), np.array(of_draw)[picked])


def _draws_of_set(
    products: Products, chosen: np.ndarray, scales: np.ndarray, error: float, terms: int, rng: np.random.Generator
) -> np.ndarray:
    """Of `TRIES` draws of one set's coefficients, those without a negative one, shape (draws, terms)."""
    gram, projected = (
        each[..., 0] / error**2 for each in _normal_equations(products, chosen[:, None], scales[:, None])
    )
    precision, right = gram + np.eye(len(gram)), projected
    try:
        root, mean = np.linalg.cholesky(precision), np.linalg.solve(precision, right)
    except np.linalg.LinAlgError:  # coefficients of sizes too far apart for double precision: not a likely set
        return np.zeros((0, terms))
    sample = mean + np.linalg.solve(root.T, rng.standard_normal((len(mean), TRIES))).T
    active = chosen >= 0
    sample = sample[(sample[:, active] >= 0).all(axis=1)] * scales
    full = np.zeros((len(sample), terms))
    full[:, chosen[active]] = sample[:, active]
    return full
