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
