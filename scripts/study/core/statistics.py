"""Statistics over repeats."""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """Mean and half-width of the 95 % confidence interval of repeated measurements; NaN where there is none."""

    n: int
    mean: float
    ci95: float


def summarize(values):
    """The `Sample` of ``values``, missing ones left out.

    The interval is Student's t with n - 1 degrees of freedom; with fewer than two values it is NaN.
    """
    values = np.asarray([value for value in values if value is not None], dtype=float)
    values = values[~np.isnan(values)]
    n = len(values)
    if n == 0:
        return Sample(0, math.nan, math.nan)
    if n == 1:
        return Sample(1, float(values[0]), math.nan)
    from scipy import special  # here, since every start of Snakemake imports this module and few need an interval

    half = special.stdtrit(n - 1, 0.975) * values.std(ddof=1) / math.sqrt(n)
    return Sample(n, float(values.mean()), float(half))
