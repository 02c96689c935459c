"""Means and confidence intervals against values worked out elsewhere."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from study.core import distributions
from study.core.statistics import (
    LogSample,
    adjust_by_holm,
    compare_geometric_means,
    compute_p_value,
    count_independent,
    find_detectable_ratio,
    find_pareto_front,
    make_exact_sample,
    make_sample_from_interval,
    pool_variance,
    summarize,
    summarize_ratios,
)

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


def test_equal_values_have_no_interval_by_rounding():
    """0.1 + 0.2 is 0.3 with another last bit."""
    assert summarize([0.1 + 0.2, 0.3, 0.3]).ci95 == 0
    assert summarize([0.99] * 3).ci95 == 0
    assert summarize([1.0, 1.0 + 1e-9]).ci95 > 0


@pytest.mark.parametrize(("values", "n", "mean", "ci95"), CASES)
def test_summarize(values, n, mean, ci95):
    sample = summarize(values)
    assert sample.n == n
    assert sample.mean == pytest.approx(mean, nan_ok=True)
    assert sample.ci95 == pytest.approx(ci95, rel=1e-3, nan_ok=True)


def test_welch_s_ratio_against_values_worked_out_by_hand():
    """Logarithms 1, 2, 3 and 0, 0, 1, 1: means 2 and 0.5, variances 1 / 3 and (1 / 3) / 4 of the means."""
    one, other = summarize_ratios(np.exp([1.0, 2.0, 3.0])), summarize_ratios(np.exp([0.0, 0.0, 1.0, 1.0]))
    ratio, low, high = compare_geometric_means(one, other, 0.05)
    freedom = (1 / 3 + 1 / 12) ** 2 / ((1 / 3) ** 2 / 2 + (1 / 12) ** 2 / 3)
    assert freedom == pytest.approx(3.0, abs=0.02)
    half = 2.3534 * math.sqrt(1 / 3 + 1 / 12)  # t(0.95, 3), from a printed table
    assert math.log(ratio) == pytest.approx(1.5)
    assert (math.log(low), math.log(high)) == pytest.approx((1.5 - half, 1.5 + half), abs=0.01)


def test_an_exact_reference_leaves_student_s_interval():
    now = summarize_ratios([2.0, 2.2, 2.4])
    assert compare_geometric_means(now, make_exact_sample(2.0), 0.05)[1:] == pytest.approx(
        [end / 2 for end in now.interval(0.05)]
    )
    assert compare_geometric_means(make_exact_sample(3.0), make_exact_sample(2.0), 0.05) == pytest.approx(
        (1.5, 1.5, 1.5)
    )


def test_a_sample_is_known_again_from_its_interval():
    sample = summarize_ratios([2.0, 2.2, 2.5, 2.1])
    again = make_sample_from_interval(4, *sample.interval(0.05), 0.05)
    assert (again.mean, again.deviation) == pytest.approx((sample.mean, sample.deviation))


@pytest.mark.slow
@pytest.mark.parametrize(("repeats", "of_reference"), [(3, 3), (3, 5), (4, 10)])
def test_welch_s_interval_fails_on_one_side_as_often_as_asked(repeats, of_reference):
    """With equal and with unequal noise; 4,000 worlds, of which 5 % are 200 with a standard deviation of 14."""
    random = np.random.default_rng(2019)
    for noise in (0.02, 0.06):
        failed = 0
        for _ in range(4000):
            now, then = random.normal(0, noise, repeats), random.normal(0, 0.02, of_reference)
            failed += (
                compare_geometric_means(summarize_ratios(np.exp(now)), summarize_ratios(np.exp(then)), 0.05)[1] > 1
            )
        assert 0.035 < failed / 4000 < 0.065


def test_the_t_test_of_ratios_against_scipy():
    logarithms = [0.1, 0.2, -0.05, 0.3]
    sample = summarize_ratios(np.exp(logarithms))
    assert compute_p_value(sample) == pytest.approx(stats.ttest_1samp(logarithms, 0).pvalue)
    low, high = sample.interval(0.025)
    assert (low > 1 or high < 1) == (compute_p_value(sample) < 0.05)
    assert math.isnan(compute_p_value(summarize_ratios([1.1])))
    assert (compute_p_value(summarize_ratios([1.0, 1.0])), compute_p_value(summarize_ratios([1.25, 1.25]))) == (1, 0)


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 4 x 0.005, 3 x 0.01, 2 x 0.03, and no less: 0.04
        ([0.6, 0.7], [1.0, 1.0]),
        ([math.nan, 0.02, 0.03], [math.nan, 0.04, 0.04]),  # what was not tested does not count
        ([], []),
    ],
)
def test_holm_by_hand(p_values, adjusted):
    assert adjust_by_holm(p_values) == pytest.approx(adjusted, nan_ok=True)


@pytest.mark.parametrize("blocks", [2, 3, 5, 10, 34])
@pytest.mark.parametrize("error", [0.05, 0.005])
def test_the_smallest_detectable_effect_is_found_with_the_power_that_was_asked(blocks, error):
    """By SciPy's noncentral t distribution."""
    effect = math.log(find_detectable_ratio(LogSample(blocks, 0.3, 0.01), error, power=0.8))
    limit = stats.t.ppf(1 - error / 2, blocks - 1)
    assert stats.nct.sf(limit, blocks - 1, effect * math.sqrt(blocks) / 0.01) == pytest.approx(0.8, abs=1e-3)


def test_the_smallest_detectable_effect_beside_a_printed_one():
    """Cohen's table for a paired t-test: 34 pairs find half a standard deviation with power 0.8 (33.4 exactly)."""
    assert math.log(find_detectable_ratio(LogSample(33.367, 0.0, 1.0), 0.05)) == pytest.approx(0.5, abs=1e-3)
    assert math.isnan(find_detectable_ratio(summarize_ratios([1.1]), 0.05))
    assert find_detectable_ratio(LogSample(10, 0.0, 0.0), 0.05) == 1


def test_points_that_are_equal_in_one_coordinate_or_both_on_the_pareto_front():
    x, y = np.array([1.0, 1.0, 2.0, 2.0, 3.0, math.nan]), np.array([2.0, 3.0, 1.0, 1.0, 1.0, 0.0])
    assert find_pareto_front(x, y).tolist() == [True, False, True, True, False, False]


def test_what_measurements_are_worth_that_resemble_the_one_before_by_hand():
    """Neighbours correlate by 1/8, and by (1 + 3/8) / 8 more without the bias: by 19/64."""
    series = [0.0, 2, 1, 3, 2, 4, 3, 5]
    assert float(count_independent(series)) == pytest.approx(8 * (64 - 19) / (64 + 19))
    assert float(count_independent(series[:4])) == 4, "too few to tell"


@pytest.mark.parametrize(
    ("variances", "freedom", "floor", "expected"),
    [
        ([], [], 0.0, (math.nan, 0)),
        ([4.0, 9.0], [0, 0], 0.0, (math.nan, 0)),
        ([4.0, 1.0, 9.0], [1, 3, 0], 0.0, (7 / 4, 4)),
        ([1.0, 2.0, 6.0, 1.0], [2, 2, 2, 2], 0.0, (2.5, 8)),  # 6 is 4.5 times the others: F(2, 6) exceeds it by 6 %
        ([1.0, 2.0, 600.0, 1.0], [2, 2, 2, 2], 0.0, (4 / 3, 6)),  # F(2, 6) exceeds 27.0 by 0.1 %
        ([1.0, 500.0, 600.0, 1.0], [2, 2, 2, 2], 0.0, (275.5, 8)),  # none is apart from the other three
        ([0.0, 0.0, 600.0], [2, 2, 2], 0.0, (200, 6)),
        ([0.0, 0.0, 600.0], [2, 2, 2], 1.0, (0, 4)),
        ([1.0, 600.0], [1, 1], 0.0, (300.5, 2)),  # F(1, 1) exceeds 600 by 2.6 %
    ],
)
def test_a_group_that_is_apart_says_nothing_about_the_others(variances, freedom, floor, expected):
    assert pool_variance(variances, freedom, floor) == pytest.approx(expected, nan_ok=True)


FREEDOM = np.array([0.5, 1, 1.5, 2, 3, 4.7, 10, 30, 99.5, 1000, 1e5])


@pytest.mark.parametrize("error", [0.4, 0.05, 0.025, 0.0005])
def test_student_s_t_against_scipy(error):
    """Also of fractional degrees of freedom, as of blocks that resemble one another."""
    quantiles = distributions.compute_t_quantile(FREEDOM, error)
    assert quantiles == pytest.approx(-special.stdtrit(FREEDOM, error), rel=1e-9)
    assert distributions.compute_t_tail(FREEDOM, quantiles) == pytest.approx(np.full(11, error), rel=1e-9)
    t = np.array([0, 1e-3, 0.5, 3, 100])
    tails = distributions.compute_t_tail(FREEDOM[:, None], t)
    assert tails == pytest.approx(special.stdtr(FREEDOM[:, None], -t), rel=1e-9)
    infinite, missing = distributions.compute_t_quantile([math.inf, math.nan], error)
    assert infinite == pytest.approx(special.ndtri(1 - error), rel=1e-9) and math.isnan(missing)


def test_other_distributions_against_scipy():
    shares = np.linspace(1e-6, 1 - 1e-6, 999)
    normal = distributions.compute_normal_quantile(shares)
    assert normal == pytest.approx(special.ndtri(shares), rel=1e-9, abs=1e-12)
    assert distributions.compute_normal_probability(normal) == pytest.approx(shares, rel=1e-9)
    for case in itertools.product((1, 2, 10.5), (1, 3.3, 400), (0.0, 0.01, 1, 3, 500)):
        assert distributions.compute_f_tail(*case) == pytest.approx(special.fdtrc(*case), rel=1e-9)
    for number, freedom in ((2, 2), (3, 1.5), (3, 12), (6, 60), (4, math.inf)):
        quantile = distributions.compute_studentized_range_quantile(number, freedom, 0.05)
        assert quantile == pytest.approx(stats.studentized_range.isf(0.05, number, freedom), rel=1e-9)
    for freedom in (0.5, 2, 7.5, 1e4):
        scales, weights = distributions.list_scales(freedom)
        assert weights @ scales**2 == pytest.approx(1, rel=1e-9)


def test_solvers_against_scipy():
    rng = np.random.default_rng(1)
    for points in (2, 6) * 25:  # of 2, several solutions are exact
        columns, values = rng.standard_normal((points, 3)), rng.standard_normal(points)
        solution = optimize.nnls(columns, values)[0]
        assert distributions.fit_nonnegative(columns, values) == pytest.approx(solution, rel=1e-9, abs=1e-12)
    assert distributions.find_minimum(lambda x: (x - 0.3) ** 2, 0, 2) == pytest.approx(0.3, abs=2e-7)
    assert distributions.find_root(lambda x: np.exp(x) - 2, -30.0, 30.0) == pytest.approx(math.log(2), rel=1e-12)
