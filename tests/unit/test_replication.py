"""Findings of a study that was run several times."""

import math
from dataclasses import replace

import numpy as np
import pytest

from study.core.statistics import ERROR_PER_SIDE, compute_t_quantile
from study.report.findings import replication
from study.report.findings.outcome import Outcome


def finding(name, estimate, half, blocks=6, verdict="yes", unit="%"):
    ends = estimate - half, estimate + half
    return Outcome(name, "", verdict, "", "", unit, estimate, *ends, blocks, 0, blocks, [], [],
                   None, None, None, blocks_worth=None)  # fmt: skip


def table_of(*findings):
    return replication.make_table("s", [[each] for each in findings]).frame.iloc[0]


def test_replicates_that_agree():
    row = table_of(*(finding("loading_share_grows", each, 1.5) for each in (2.0, 2.5, 3.0, 2.5)))
    assert (row.pooled, row.lowest, row.highest, row.hold, row.hold_share) == (2.5, 2.0, 3.0, 4, 1.0)
    assert row.verdicts == "4 yes"
    error = 1.5 / compute_t_quantile(5, ERROR_PER_SIDE)
    assert row.q == pytest.approx(0.5 / error**2)
    assert row.i_squared == 0 and row.meaning == "the replicates do not differ more than their intervals say"
    apart = table_of(*(finding("loading_share_grows", each, 1.5) for each in (2.0, 6.0, 10.0)))
    assert apart.i_squared == pytest.approx(1 - 2 * error**2 / 32) and apart.meaning != row.meaning


def test_an_error_has_the_degrees_of_freedom_of_its_interval():
    """Blocks that resemble the one before are worth fewer: the interval is that of 3 blocks."""
    each = [replace(finding("loading_share_grows", estimate, 1.5), blocks_worth=3.0) for estimate in (2.0, 2.5, 3.0)]
    row = table_of(*each)
    assert row.q == pytest.approx(0.5 / (1.5 / compute_t_quantile(2, ERROR_PER_SIDE)) ** 2)


def test_reductions_are_pooled_by_the_logarithms_of_their_ratios():
    thrice = [
        replace(finding("chunked_shortens_loading", 100 * (1 - ratio), 0), low=100 * (1 - ratio * 1.1),
                high=100 * (1 - ratio / 1.1))
        for ratio in (0.5, 0.8, 0.5 * 0.8)
    ]  # fmt: skip
    assert table_of(*thrice).pooled == pytest.approx(100 * (1 - math.cbrt(0.5 * 0.8 * 0.4)))


def test_replicates_without_an_estimate_do_not_count():
    few = replace(finding("loading_share_grows", 1, 1, verdict="not_enough_runs"), estimate=None)
    row = table_of(finding("loading_share_grows", 2.0, 1), few, finding("loading_share_grows", 2.0, 1))
    assert (row.replicates, row.verdicts) == (2, "2 yes, 1 not enough runs")
    assert row.meaning == "fewer than 3 replicates have an estimate" and np.isnan(row.pooled)
