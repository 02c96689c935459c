"""Simple fits of time against ranks: peers of the model of scaling series, and two of them members of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LEAST = 0.01  # of the last fitted time: a fit that falls below it is held there

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray, bool], np.ndarray]


def power_law(ranks: np.ndarray, times: np.ndarray, counts: np.ndarray, fixed: bool) -> np.ndarray:
    """Fixed work: a N^b, by least squares of the logarithms. Work of each rank fixed: a + b log N.

    Args:
        ranks: fitted counts, shape (points,).
        times: at these, shape (points,), of any unit.
        counts: to predict, shape (counts,).
        fixed: whether the ranks share a fixed work.

    Returns: times, shape (counts,), in the unit of ``times``. The other fits have the same arguments.
    """
    x, at = (np.stack([np.ones(len(each)), np.log(each)], axis=1) for each in (ranks, counts))
    found = at @ np.linalg.lstsq(x, np.log(times) if fixed else times, rcond=None)[0]
    return np.exp(found) if fixed else _positive(found, times)


def three_terms(ranks: np.ndarray, times: np.ndarray, counts: np.ndarray, fixed: bool) -> np.ndarray:
    """Times of a + b/N + c log N with coefficients of at least 0, by relative least squares; see `power_law`."""
    from scipy.optimize import nnls  # imported late: every start of Snakemake imports this module

    x, at = (np.stack([np.ones(len(each)), 1 / each, np.log(each)], axis=1) for each in (ranks, counts))
    return _positive(at @ nnls(x / times[:, None], np.ones(len(times)))[0], times)


def perfect_scaling(ranks: np.ndarray, times: np.ndarray, counts: np.ndarray, fixed: bool) -> np.ndarray:
    """The time at the largest fitted count, divided by the growth of the ranks where they share it."""
    last = int(np.argmax(ranks))
    return times[last] * ranks[last] / counts if fixed else np.full(len(counts), times[last])


def _positive(found: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.maximum(found, LEAST * times[-1])


FITS: dict[str, Fit] = {"power_law": power_law, "three_terms": three_terms, "perfect_scaling": perfect_scaling}
