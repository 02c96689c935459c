"""Means and confidence intervals against values worked out elsewhere."""

import math

import pytest

from study.core.statistics import summarize

CASES = [
    # values, n, mean, half-width: t(0.975, n - 1) x s / sqrt(n), with t from a printed table
    ([], 0, math.nan, math.nan),
    ([3.0], 1, 3.0, math.nan),
    ([None, float("nan"), 3.0], 1, 3.0, math.nan),
    ([1.0, 3.0], 2, 2.0, 12.706 * math.sqrt(2) / math.sqrt(2)),
    ([1.0, 2.0, 3.0], 3, 2.0, 4.303 / math.sqrt(3)),
    ([10.0, 12.0, 11.0, 13.0, 14.0], 5, 12.0, 2.776 * 1.5811388 / math.sqrt(5)),
    ([5.0, 5.0, 5.0], 3, 5.0, 0.0),
]


@pytest.mark.parametrize(("values", "n", "mean", "ci95"), CASES)
def test_summarize(values, n, mean, ci95):
    sample = summarize(values)
    assert sample.n == n
    assert sample.mean == pytest.approx(mean, nan_ok=True)
    assert sample.ci95 == pytest.approx(ci95, rel=1e-3, nan_ok=True)
